// The flags of sharded data parallelism: of the trainer fsdp and, as far as it
// has them, hybrid.
#ifndef RANKWISE_TRAINERS_ZERO_FLAGS_H_
#define RANKWISE_TRAINERS_ZERO_FLAGS_H_

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "parallel/sharded/fully_sharded.h"
#include "trainers/loop/config.h"
#include "trainers/loop/sharded_state.h"
#include "trainers/loop/step.h"
#include "trainers/loop/worker.h"
#include "trainers/models/model.h"

namespace rankwise {

// Before any rank is started.
absl::Status CheckFsdpFlags();

// Divides `model` among the worker's data-parallel ranks as the flags say, and
// lets the engine run its layers from here on. Collective along dp. The model
// and the worker must outlive the result.
absl::StatusOr<std::unique_ptr<FullyShardedDataParallel>> ShardModel(
    Model& model, const TrainConfig& config, const Worker& worker);

// What checkpoints have to know of it.
ShardedState StateOf(const FullyShardedDataParallel& engine);

// What a step waited for since the last call: the sum, and by unit.
StepOutcome OutcomeOf(const torch::Tensor& loss,
                      FullyShardedDataParallel& engine);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_ZERO_FLAGS_H_
