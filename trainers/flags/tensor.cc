// Flags that tensor_parallel and hybrid share.
#include "trainers/flag_rules.h"

TRAINER_FLAG(kSpeed, bool, sequence_parallel, false,
             "between the divided layers, ranks along tp have their part of "
             "the tokens and not all of them");
TRAINER_FLAG(kSpeed, int, tp_overlap, 1,
             "pieces of each product along tp, so that one is exchanged while "
             "the next is multiplied; 1: no overlap");
