// Flags of fsdp alone.
#include "trainers/flag_rules.h"

TRAINER_FLAG(
    kLayout, int, shard_ranks, 0,
    "number of ranks that share one sharded copy of the state, such as "
    "those of a node; the copies are replicas (HSDP). 0: all ranks");
TRAINER_FLAG(
    kSpeed, bool, reduce_every_microbatch, false,
    "with --accumulate, --zero=2 or 3: reduce the gradients of each "
    "micro-batch, so that no rank keeps whole ones, and not their sum");
TRAINER_FLAG(kSpeed, bool, offload_optimizer, false,
             "on a GPU: the optimizer's state, and the update, on the host");
