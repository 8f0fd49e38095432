// What a run must remember to go on as if it had never stopped, and whether a
// checkpoint belongs to it.
#ifndef RANKWISE_TRAINERS_RESUME_RUN_CHECKPOINTS_H_
#define RANKWISE_TRAINERS_RESUME_RUN_CHECKPOINTS_H_

#include <cstdint>
#include <functional>
#include <future>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "records/record.h"
#include "trainers/checkpoint/checkpoint.h"
#include "trainers/loop/config.h"
#include "trainers/loop/optimizer.h"
#include "trainers/loop/worker.h"
#include "trainers/models/model.h"
#include "trainers/resume/progress.h"
#include "trainers/resume/sharded_state.h"

namespace rankwise {

// What an engine keeps in checkpoints, as text; functions may be null.
// Collective, between steps.
struct EngineState {
  std::function<std::string()> save;
  std::function<void(const std::string&)> restore;
};

// The checkpoints of one run, in --checkpoint_dir. Every method is collective;
// what the constructor takes must outlive this. A rank saves what it owns, or
// its block of it, in a file of its own; the checkpoint is that of the whole
// model, whatever the mesh.
class RunCheckpoints {
 public:
  RunCheckpoints(const TrainConfig& config, int64_t total_steps,
                 const Worker& worker, Model& model, Optimizer& optimizer,
                 ShardedState sharded = {}, EngineState engine = {});

  // To be called first: settles which ranks write a file, and the first rank
  // makes the folder. One that cannot be written to must be known before the
  // training, not after it: FailedPrecondition.
  absl::Status Open();

  // Restores the newest checkpoint that is good on every rank, if there is one,
  // also one of another number of data-parallel ranks or another mesh. A rank
  // reads what it needs, and headers of the rest. Damaged checkpoints are
  // passed over, and named by the first rank and by those that read the damaged
  // part. FailedPrecondition if the checkpoint is of another configuration,
  // naming the first flag that differs.
  //
  // Random generators go on where they were; that of a data-parallel rank that
  // the checkpoint does not know, or knows on another kind of device, is seeded
  // from the seed, the step and the rank. What ranks that are gone have summed
  // up is the first one's.
  //
  // `after_restart`: if the folder has only what interrupted saves have left,
  // there is none: the ranks failed before the first checkpoint was complete.
  // Otherwise that is an error, as parts may have been lost.
  absl::StatusOr<std::optional<Progress>> Resume(bool after_restart = false);

  // Writes this rank's part; with config.checkpoint.async it returns when that
  // is copied in memory, and a thread writes. Waits for the save before it, and
  // returns what a rank that wrote a part of the last save that is complete
  // records of that, once. The random generators and sums of all ranks are in
  // the first part. Where one rank cannot write, all return the same error,
  // which names the rank and the file, and the last checkpoint stays; so in
  // Open and Export.
  absl::StatusOr<std::optional<CheckpointRecord>> Save(
      const Progress& progress);

  // Waits until all ranks have written the last save, and returns as Save. To
  // be called at the end; without it, the destructor waits for this rank's
  // part, and nobody hears of an error.
  absl::StatusOr<std::optional<CheckpointRecord>> Finish();

  // Writes the model's parameters and buffers, whole and under their Python
  // names, as .safetensors files, one per rank along pp; without copies of
  // weights that another rank owns.
  absl::Status Export();

 private:
  absl::StatusOr<Checkpoint> Capture(const Progress& progress) const;
  absl::StatusOr<CheckpointRecord> Write(const Checkpoint& checkpoint,
                                         double start_seconds);
  absl::StatusOr<Progress> Restore(CheckpointReader& reader);
  absl::Status ExportPart(const std::string& path);

  const TrainConfig& config_;
  const int64_t total_steps_;
  const Worker& worker_;
  Model& model_;
  Optimizer& optimizer_;
  const ShardedState sharded_;
  const EngineState engine_;
  int parts_ = 0;                         // files of a checkpoint
  std::optional<CheckpointStore> store_;  // from Open on
  // The save that is not finished yet, and this rank's part of it.
  std::optional<int64_t> saving_step_;
  double blocked_seconds_ = 0;                             // by it
  std::future<absl::StatusOr<CheckpointRecord>> writing_;  // uses store_
};

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_RESUME_RUN_CHECKPOINTS_H_
