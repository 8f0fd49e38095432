// Flags that tensor_parallel and hybrid share.
#include "trainers/flag_rules.h"

TRAINER_FLAG(kSpeed, bool, sequence_parallel, false,
             "between the divided layers, each rank along tp holds its part of "
             "the tokens instead of all tokens");
TRAINER_FLAG(kSpeed, int, tp_overlap, 1,
             "pieces of each product along tp, so that one is exchanged while "
             "the next is multiplied; 1: no overlap");
