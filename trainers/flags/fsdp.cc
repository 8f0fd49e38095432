// Flags of fsdp alone.
#include "trainers/flag_rules.h"

TRAINER_FLAG(
    kLayout, int, shard_ranks, 0,
    "number of ranks that share one sharded copy of the state, such as "
    "those of a node; the copies are replicas (HSDP). If 0, all ranks");
TRAINER_FLAG(kSpeed, bool, reduce_every_microbatch, false,
             "with --accumulate and --zero=2 or 3: reduce-scatter the "
             "gradients of each micro-batch instead of their sum, "
             "so that no rank holds full gradients");
TRAINER_FLAG(
    kSpeed, bool, offload_optimizer, false,
    "on a GPU: hold the optimizer state and run the update on the host");
