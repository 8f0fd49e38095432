// The division of model state among ranks.
#ifndef RANKWISE_PARALLEL_SHARDED_SHARDING_H_
#define RANKWISE_PARALLEL_SHARDED_SHARDING_H_

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "c10/core/ScalarType.h"
#include "parallel/comm/group.h"

namespace rankwise {

// Data-parallel ranks as a grid: the ranks of `shard` hold different parts of
// the state, those of `replicate` the same part. One rank in replicate: fully
// sharded. Several: HSDP (Zhao et al. 2023, "PyTorch FSDP", section 3.2.2),
// with `shard` inside a node.
struct ShardingGroups {
  Group shard;
  Group replicate;

  int ranks() const { return shard.size() * replicate.size(); }
};

// Divides `line` into groups of `shard_ranks` adjacent ranks. Collective over
// all ranks of the job. InvalidArgument unless they divide its size.
absl::StatusOr<ShardingGroups> DivideLine(const Group& line, int shard_ranks);

struct ShardingConfig {
  // ZeRO stage (Rajbhandari et al. 2020, "ZeRO", section 5): 1 divides the
  // optimizer state, 2 also the gradients, 3 also the parameters.
  int stage = 3;
  // Number of units gathered ahead of the current one.
  int prefetch = 1;
  // Type in which parameters are gathered and used, by default the model's. The
  // optimizer's rows and the gradient sums always have the model's type.
  std::optional<c10::ScalarType> parameter_type = {};
  // Stages 2 and 3: reduces the gradients of every micro-batch immediately, so
  // that ranks never accumulate full ones; one reduce-scatter per micro-batch.
  bool reduce_every_micro_batch = false;
  // For pipelines: interleaves the forwards and backwards of several
  // micro-batches; GradientSync::Start marks complete gradients.
  bool interleave_micro_batches = false;
  // Stores the ranks' rows, and thus the optimizer state, in host memory.
  bool offload = false;
};

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_SHARDED_SHARDING_H_
