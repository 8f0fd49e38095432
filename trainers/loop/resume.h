// What a run must remember to go on as if it had never stopped, and whether a
// checkpoint belongs to it.
#ifndef RANKWISE_TRAINERS_LOOP_RESUME_H_
#define RANKWISE_TRAINERS_LOOP_RESUME_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "records/record.h"
#include "trainers/checkpoint/checkpoint.h"
#include "trainers/loop/config.h"
#include "trainers/loop/optimizer.h"
#include "trainers/loop/sharded_state.h"
#include "trainers/loop/worker.h"
#include "trainers/models/model.h"

namespace rankwise {

struct Progress {
  int64_t step = 0;       // optimizer steps done
  int64_t epoch = 1;      // the epoch in progress
  int64_t position = 0;   // its micro-batches done
  double epoch_loss = 0;  // this rank's sum over the epoch's examples so far
  int64_t epoch_examples = 0;  // of this rank
  double epoch_seconds = 0;
};

// The checkpoints of one run, in --checkpoint_dir. Every method is collective;
// what the constructor takes must outlive this.
class RunCheckpoints {
 public:
  RunCheckpoints(const TrainConfig& config, int64_t total_steps,
                 const Worker& worker, Model& model, Optimizer& optimizer,
                 ShardedState sharded = {});

  // The first rank makes the folder. A folder that cannot be written to must be
  // known before the training, not after it: FailedPrecondition.
  absl::Status MakeFolder() const;

  // Restores the newest checkpoint that is good on every rank, if there is one.
  // A rank reads the parts that hold what its model and optimizer need, and
  // headers of the others. Damaged checkpoints are passed over, and named by
  // the first rank and by those that read the damaged part.
  absl::StatusOr<std::optional<Progress>> Resume();

  // Writes this rank's part, and returns what a rank that writes one records.
  absl::StatusOr<std::optional<CheckpointRecord>> Save(
      const Progress& progress);

  // Writes the model's parameters and buffers, under their Python names, as
  // .safetensors files; without copies of weights that another rank owns.
  absl::Status Export();

  // The run's state as a checkpoint; where ranks hold parts of the model, this
  // rank's part of it. The random generators and sums of all ranks are in the
  // first part.
  absl::StatusOr<Checkpoint> Capture(const Progress& progress) const;

  // Puts the state back. FailedPrecondition if the checkpoint is of another
  // configuration, naming the first flag that differs; DataLoss if it lacks a
  // tensor that the model has.
  absl::StatusOr<Progress> Restore(const Checkpoint& checkpoint);

 private:
  absl::StatusOr<std::optional<Checkpoint>> Load();
  // What a checkpoint and the run that resumes it must agree on, as JSON.
  std::string LossDecidingConfig() const;

  const TrainConfig& config_;
  const int64_t total_steps_;
  const Worker& worker_;
  Model& model_;
  Optimizer& optimizer_;
  const ShardedState sharded_;
  CheckpointStore store_;
};

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_LOOP_RESUME_H_
