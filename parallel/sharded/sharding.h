// Among which ranks state is divided, and how much of it.
#ifndef RANKWISE_PARALLEL_SHARDED_SHARDING_H_
#define RANKWISE_PARALLEL_SHARDED_SHARDING_H_

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "c10/core/ScalarType.h"
#include "parallel/comm/group.h"

namespace rankwise {

// Data-parallel ranks as a grid: each of `shard` has a part of the state, and
// those of `replicate` have the same part. One rank along replicate: fully
// sharded. Several: HSDP (Zhao et al. 2023, "PyTorch FSDP", section 3.2.2), for
// which `shard` lies within a node.
struct ShardingGroups {
  Group shard;
  Group replicate;

  int ranks() const { return shard.size() * replicate.size(); }
};

// Divides `line` into groups of `shard_ranks` neighbours. Collective over all
// ranks of the job. InvalidArgument where they do not divide its size.
absl::StatusOr<ShardingGroups> DivideLine(const Group& line, int shard_ranks);

struct ShardingConfig {
  // What is divided (Rajbhandari et al. 2020, "ZeRO", section 5): 1 the
  // optimizer's state, 2 the gradients too, 3 the parameters too.
  int stage = 3;
  // Units whose parameters are gathered ahead of the one that computes.
  int prefetch = 1;
  // In which parameters are gathered and used; what the optimizer updates and
  // gradients are summed in stay as the model has them. None: the same.
  std::optional<c10::ScalarType> parameter_type = {};
  // Stage 2 and 3: every micro-batch's gradients are reduced at once, so that
  // no rank ever holds whole ones, at one reduce-scatter per micro-batch.
  bool reduce_every_micro_batch = false;
  // As in a pipeline: forwards and backwards of several micro-batches take
  // turns, and GradientSync says when gradients are complete.
  bool micro_batches_take_turns = false;
  // The ranks' rows, and with them the optimizer's state, are in the host's
  // memory.
  bool offload = false;
};

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_SHARDED_SHARDING_H_
