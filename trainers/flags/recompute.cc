// A flag that pipeline, hybrid and fsdp share.
#include "trainers/flag_rules.h"

TRAINER_FLAG(
    kSpeed, bool, recompute, false,
    "keep only what enters a pipeline's stages, or the sharded model's "
    "layers, and run their forwards again in backward");
