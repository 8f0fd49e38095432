// Flags of hybrid alone: the axes that pipeline lacks.
#include <string>

#include "trainers/flag_rules.h"

TRAINER_FLAG(kLayout, int, tp, 1,
             "ranks that divide every layer's weights (tensor parallelism)");
TRAINER_FLAG(kLayout, int, cp, 1,
             "ranks that divide every sequence (context parallelism)");
TRAINER_FLAG(
    kSpeed, std::string, context, "ring",
    "how attention sees the tokens of other ranks along cp: ring "
    "(keys and values circulate) or ulysses (an all-to-all gives every "
    "rank all tokens of some heads)");
TRAINER_FLAG(kLayout, std::string, mesh_order, "pp,dp,cp,tp",
             "order of the mesh's axes; ranks that differ in the last one are "
             "neighbours, on one node where possible");
