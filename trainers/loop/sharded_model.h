// A model whose parameters are divided along dp: between the engine, which
// knows no model, and the training run.
#ifndef RANKWISE_TRAINERS_LOOP_SHARDED_MODEL_H_
#define RANKWISE_TRAINERS_LOOP_SHARDED_MODEL_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "parallel/sharded/fully_sharded.h"
#include "records/record.h"
#include "trainers/loop/config.h"
#include "trainers/loop/model_placement.h"
#include "trainers/loop/worker.h"
#include "trainers/models/model.h"
#include "trainers/resume/sharded_state.h"

namespace rankwise {

struct ZeroConfig {
  ShardingConfig sharding = {.stage = 0};  // 0: nothing is divided
  // "block": one unit per layer of the model; "layer": one per Linear,
  // LayerNorm, ... in it; "4.5": layers in a row, until they have as many MiB.
  std::string units = "block";
  int shard_ranks = 0;     // that share one copy of the state; 0: all along dp
  bool recompute = false;  // layers keep their input only
};

// Whether `units` is one of the texts above; the MiB, if it is a number.
bool IsUnits(const std::string& units);
std::optional<double> UnitMebibytes(const std::string& units);

// What the rank holds of its model, for ComputeMemory.
Sharding ShardingOf(const ZeroConfig& zero, const Worker& worker);

// Divides `model`, or the layers of it that are here, among the ranks along dp,
// and lets the engine run its layers from here on; ranks along cp have the
// same. Collective. The model and the worker's mesh must outlive the result.
// InvalidArgument where shard_ranks does not fit.
absl::StatusOr<std::unique_ptr<FullyShardedDataParallel>> ShardModel(
    Model& model, const TrainConfig& config, const Worker& worker,
    const ZeroConfig& zero);

// What checkpoints have to know of it.
ShardedState StateOf(const FullyShardedDataParallel& engine);

// Takes what the engine's step waited for, to be added once to the step's
// record (StepOutcome::complete), which blocks until it is known.
std::function<void(StepRecord&)> RecordUnitWaits(
    FullyShardedDataParallel& engine);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_LOOP_SHARDED_MODEL_H_
