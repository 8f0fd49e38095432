// Checkpoints: safetensors files, one or one per shard, in a folder that keeps
// the last few.
#ifndef RANKWISE_TRAINERS_CHECKPOINT_CHECKPOINT_H_
#define RANKWISE_TRAINERS_CHECKPOINT_CHECKPOINT_H_

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trainers/checkpoint/checkpoint_file.h"
#include "trainers/checkpoint/checkpoint_folder.h"
#include "trainers/checkpoint/checkpoint_reader.h"

namespace rankwise {

// Takes what a rank needs out of a checkpoint.
using LoadFunction = std::function<absl::Status(CheckpointReader&)>;

// The checkpoints of one folder; see checkpoint_folder.h for its files, and
// checkpoint_file.h for what is in them. Checksums show that a file is torn or
// was changed. One process may save at a time, or one per shard; any number may
// load. Not thread-safe. On each rank that has a shard:
//
//   CheckpointStore store("runs/a", /*keep_last=*/3, /*shard=*/stage, 4);
//   RETURN_IF_ERROR(store.Save(mine));
//   ... // all ranks learn that all have saved
//   if (stage == 0) RETURN_IF_ERROR(store.Prune());
class CheckpointStore {
 public:
  // Keeps the `keep_last` >= 1 newest checkpoints. 0 <= shard < num_shards.
  CheckpointStore(std::string dir, int keep_last, int shard = 0,
                  int num_shards = 1);

  // Blocks until this rank's shard is on the disk. After an error, or a crash
  // of any rank, the folder's earlier checkpoints are as they were and nothing
  // half-written takes their place. A checkpoint of the same step and number
  // of shards is replaced shard by shard. With one shard it goes on to Prune().
  absl::Status Save(const Checkpoint& checkpoint);

  // To be called when all shards of the last Save are known to be saved, by one
  // rank or by all: deletes older checkpoints, and what is left of incomplete
  // ones. Those of later steps, or of the same in another layout, which would
  // win at the next LoadLatest, are set aside as `<name>.superseded`
  // (SupersedeSet).
  // FailedPrecondition, with nothing deleted, when a shard is missing after
  // all. Does nothing before the first Save.
  absl::Status Prune();

  // Gives the newest checkpoint that is whole, of steps up to `last_step`, to
  // `load`, however many shards it was saved in; returns its step. nullopt,
  // without a call, when the folder has none or does not exist. DataLoss of
  // `load`, too, says that it is not whole; another error ends the search. Each
  // newer one that had to be passed over adds a line to `warnings` saying which
  // file is at fault, and why. Errors: `load`'s, or the folder cannot be read,
  // or it has checkpoints and none is whole.
  absl::StatusOr<std::optional<int64_t>> LoadLatest(
      std::vector<std::string>* warnings, const LoadFunction& load,
      int64_t last_step = std::numeric_limits<int64_t>::max(),
      const CheckpointHeaders& headers = {});

  // The headers that LoadLatest would read first, for the LoadLatest of other
  // processes, which then do not open the files for them: those of the newest
  // checkpoint, of steps up to `last_step`, of which no file is missing.
  CheckpointHeaders ReadLatestHeaders(
      int64_t last_step = std::numeric_limits<int64_t>::max()) const;

  // Whether the folder contains checkpoints, but only incomplete ones, as an
  // interrupted first save leaves them.
  absl::StatusOr<bool> HasOnlyInterrupted() const;

  // Where Save() writes this rank's shard of the checkpoint of `step`.
  std::string Path(int64_t step) const;

 private:
  absl::Status FindSuperseded(int64_t step);
  absl::Status CheckAllSaved() const;

  const std::string dir_;
  const int keep_last_;
  const int shard_;
  const int num_shards_;
  std::optional<int64_t> saved_step_;      // the last one
  std::vector<CheckpointSet> superseded_;  // by it
};

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_CHECKPOINT_CHECKPOINT_H_
