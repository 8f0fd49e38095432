// A flag that pipeline, hybrid and fsdp share.
#include "trainers/flag_rules.h"

TRAINER_FLAG(
    kSpeed, bool, recompute, false,
    "store only the inputs of a pipeline's stages, or of the sharded model's "
    "layers, and recompute their forwards in backward");
