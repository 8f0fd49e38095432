// A model whose parameters are sharded along dp: connects the engine, which is
// independent of models, with the training run.
#ifndef RANKWISE_TRAINERS_LOOP_SHARDED_MODEL_H_
#define RANKWISE_TRAINERS_LOOP_SHARDED_MODEL_H_

#include <functional>
#include <memory>
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
  ShardingConfig sharding = {.stage = 0};  // stage 0: no sharding
  // "block": one unit per layer of the model; "layer": one per Linear,
  // LayerNorm, ... in it; "4.5": consecutive layers of at least this many MiB.
  std::string units = "block";
  int shard_ranks = 0;     // ranks per copy of the state; 0 for all along dp
  bool recompute = false;  // layers store only their input
};

// Returns the rank's part of its model, for ComputeMemory.
Sharding ShardingOf(const ZeroConfig& zero, const Worker& worker);

// Shards `model`, or its layers on this rank, among the ranks along dp and lets
// the engine run its layers from now on; ranks along cp hold identical shards.
// Collective. The model and the worker's mesh must outlive the result.
// InvalidArgument if shard_ranks does not fit.
absl::StatusOr<std::unique_ptr<FullyShardedDataParallel>> ShardModel(
    Model& model, const TrainConfig& config, const Worker& worker,
    const ZeroConfig& zero);

// Returns the engine's shards, for checkpoints.
ShardedState StateOf(const FullyShardedDataParallel& engine);

// Takes the waits of the engine's step. Returns a function that adds them once
// to the step's record (StepOutcome::complete), blocking until they are known.
std::function<void(StepRecord&)> RecordUnitWaits(
    FullyShardedDataParallel& engine);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_LOOP_SHARDED_MODEL_H_
