// Flags that fsdp and hybrid share.
#include <string>

#include "trainers/flag_rules.h"

TRAINER_FLAG(
    kSpeed, int, zero, 0,
    "ZeRO stage: state sharded among data-parallel ranks; 1: optimizer "
    "state; 2: also gradients; 3: also parameters; 0: nothing");
TRAINER_FLAG(kSpeed, std::string, units, "block",
             "granularity of all-gathers: block (one of the model's "
             "layers, such as a transformer block), layer (each Linear, "
             "LayerNorm, ... in it), or a number of MiB (consecutive blocks)");
TRAINER_FLAG(kSpeed, int, prefetch, 1,
             "units gathered ahead of the one that computes");
TRAINER_FLAG(kLosses, std::string, param_dtype, "",
             "data type in which sharded parameters are gathered and used, "
             "fp32 or bf16; the optimizer's copy and gradient sums stay fp32. "
             "Default: that of --precision");
