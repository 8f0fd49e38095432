// What a run must remember to go on as if it had never stopped, and whether a
// checkpoint belongs to it.
#ifndef RANKWISE_TRAINERS_RESUME_H_
#define RANKWISE_TRAINERS_RESUME_H_

#include <torch/nn/module.h>

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trainers/checkpoint/checkpoint.h"
#include "trainers/config.h"
#include "trainers/models/model.h"
#include "trainers/optimizer.h"
#include "trainers/worker.h"

namespace rankwise {

struct Progress {
  int64_t step = 0;       // optimizer steps done
  int64_t epoch = 1;      // the epoch in progress
  int64_t position = 0;   // its micro-batches done
  double epoch_loss = 0;  // this rank's sum over the epoch's examples so far
  int64_t epoch_examples = 0;  // of this rank
  double epoch_seconds = 0;
};

// The flags that decide the losses, as JSON (but for threads and device, which
// change the last digits only): what a checkpoint and the run that resumes it
// must agree on.
std::string LossDecidingConfig(const TrainConfig& config, int64_t total_steps,
                               const Worker& worker);

// The run's state as a checkpoint; where ranks hold parts of the model, this
// rank's shard of it. Collective where there are several ranks: the random
// generators and sums of all of them are in the first shard.
absl::StatusOr<Checkpoint> Capture(const TrainConfig& config,
                                   int64_t total_steps, const Worker& worker,
                                   const Model& model,
                                   const Optimizer& optimizer,
                                   const Progress& progress);

// Puts the state back. FailedPrecondition if the checkpoint is of another
// configuration, naming the first flag that differs; Internal if it lacks a
// tensor that the model has.
absl::StatusOr<Progress> Restore(const Checkpoint& checkpoint,
                                 const TrainConfig& config, int64_t total_steps,
                                 const Worker& worker, Model& model,
                                 Optimizer& optimizer);

// The newest checkpoint that is good on every rank (collective), or nothing.
// A rank reads the shards that hold what `model` and `optimizer` need, and
// headers of the others. Damaged checkpoints are passed over, and named by the
// first rank and by those that read the damaged shard.
absl::StatusOr<std::optional<Checkpoint>> LoadForResume(
    CheckpointStore& store, const Worker& worker, const Model& model,
    const Optimizer& optimizer);

// The model's parameters and buffers under their Python names, for a
// .safetensors file; without copies of weights that another rank owns.
NamedTensors ModelTensors(const Model& model);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_RESUME_H_
