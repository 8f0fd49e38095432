// Saves and restores the complete state of a run, so that it continues as if it
// had never stopped.
#ifndef RANKWISE_TRAINERS_RESUME_RUN_CHECKPOINTS_H_
#define RANKWISE_TRAINERS_RESUME_RUN_CHECKPOINTS_H_

#include <cstdint>
#include <functional>
#include <future>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "records/record.h"
#include "trainers/checkpoint/checkpoint.h"
#include "trainers/checkpoint/folder_lock.h"
#include "trainers/checkpoint/safetensors.h"
#include "trainers/loop/config.h"
#include "trainers/loop/optimizer.h"
#include "trainers/loop/worker.h"
#include "trainers/models/model.h"
#include "trainers/resume/progress.h"
#include "trainers/resume/sharded_state.h"

namespace rankwise {

// An engine's state in checkpoints, as text; functions may be nullptr.
// Collective, between steps.
struct EngineState {
  std::function<std::string()> save;
  std::function<void(const std::string&)> restore;
  // Ranks never receive other ranks' buffers, and need their own to continue.
  bool own_buffers = false;
};

// Returns FailedPrecondition if the newest checkpoint in --checkpoint_dir is
// intact but was made with another configuration, naming the first flag that
// differs. Starts no threads.
absl::Status CheckResume(const TrainConfig& config, int64_t total_steps,
                         const Worker& worker);

// The checkpoints of one run, in --checkpoint_dir. Every method is collective;
// the constructor's arguments must outlive this. Each rank saves the tensors,
// or blocks of tensors, that it owns in its own file; together the files
// describe the full model, independently of the mesh.
class RunCheckpoints {
 public:
  RunCheckpoints(const TrainConfig& config, int64_t total_steps,
                 const Worker& worker, Model& model, Optimizer& optimizer,
                 ShardedState sharded = {}, EngineState engine = {});

  // Must be called first. Determines which ranks write a file; the first rank
  // creates the folder and locks it for the lifetime of this object. Fails if
  // the folder cannot be written to (InvalidArgument) or another job has locked
  // it (FailedPrecondition), so that a run fails before training rather than
  // after it.
  absl::Status Open();

  // Restores the newest checkpoint that every rank can load, if there is one;
  // it may have been saved with a different number of ranks or another mesh. A
  // rank opens the files with data that it needs; the first rank reads the
  // headers of all files for all ranks. Damaged checkpoints are skipped, with a
  // warning by the first rank and by those that read the damaged part.
  // FailedPrecondition if the checkpoint has another configuration, naming the
  // first flag that differs.
  //
  // Random generators and sums are restored as by RestoreProgress(). If ranks
  // hold the whole model, so are their buffers: each rank's own if the number
  // of ranks is the same, otherwise the first rank's, which is an error
  // (FailedPrecondition) with EngineState::own_buffers. Under OnNan::kStop a
  // checkpoint whose parameters are not finite counts as damaged.
  //
  // `after_restart`: if the folder contains only incomplete checkpoints, there
  // is none to restore: the ranks failed before the first one was complete.
  // Without it this is an error, as parts may have been lost.
  absl::StatusOr<std::optional<Progress>> Resume(bool after_restart = false);

  // Returns OutOfRange, the same on all ranks, if a parameter or buffer to be
  // saved has a value that is not finite; names the rank and the tensor.
  absl::Status CheckFinite(int64_t step) const;

  // Writes this rank's part. With config.checkpoint.async, returns once the
  // part is copied in memory, which a thread then writes; waits for the
  // previous save first. Returns, once, the record of the last complete save,
  // on ranks that wrote a part of it. The random generators and sums of all
  // ranks are in the first part. If one rank cannot write, all ranks return the
  // same error, which names the rank and the file, and the previous checkpoint
  // remains; the same holds for Open and Export. If the folder does not show
  // all files of this checkpoint yet, older ones are kept with a warning, and
  // the next save deletes them.
  absl::StatusOr<std::optional<CheckpointRecord>> Save(
      const Progress& progress);

  // Waits until all ranks have written the last save, and returns as Save does.
  // Call it at the end: otherwise the destructor waits for this rank's part,
  // and errors are not reported.
  absl::StatusOr<std::optional<CheckpointRecord>> Finish();

  // Step of the last checkpoint that was completed or resumed from.
  const std::optional<int64_t>& complete_step() const { return complete_step_; }

  // Writes the model's full parameters and buffers under their Python names, as
  // .safetensors files, one per rank along pp, without copies of weights that
  // another rank owns; those of a llama under the names of Hugging Face's
  // models, with their config.json.
  absl::Status Export();

 private:
  absl::StatusOr<Checkpoint> Capture(const Progress& progress) const;
  absl::Status AddBuffers(Checkpoint& checkpoint) const;
  absl::Status RestoreBuffers(CheckpointReader& reader) const;
  absl::Status Prune();
  absl::StatusOr<CheckpointRecord> Write(const Checkpoint& checkpoint,
                                         double start_seconds);
  absl::StatusOr<Progress> Restore(CheckpointReader& reader);
  absl::Status ExportPart(const std::string& path);
  absl::Status WriteExport(const std::string& path,
                           std::vector<TensorSource> tensors) const;

  const TrainConfig& config_;
  const int64_t total_steps_;
  const Worker& worker_;
  Model& model_;
  Optimizer& optimizer_;
  const ShardedState sharded_;
  const EngineState engine_;
  std::optional<FolderLock> lock_;        // held by the first rank
  int parts_ = 0;                         // files of a checkpoint
  std::optional<CheckpointStore> store_;  // set by Open
  // The save in progress, and this rank's part of it.
  std::optional<int64_t> saving_step_;
  std::optional<int64_t> complete_step_;
  double blocked_seconds_ = 0;  // seconds that Save() blocked training
  std::future<absl::StatusOr<CheckpointRecord>> writing_;  // uses store_
};

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_RESUME_RUN_CHECKPOINTS_H_
