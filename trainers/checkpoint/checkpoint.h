// Checkpoints: safetensors files, one or one per shard, in a folder that
// retains the newest ones.
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

// Reads a rank's part of a checkpoint.
using LoadFunction = std::function<absl::Status(CheckpointReader&)>;

// The checkpoints of one folder; see checkpoint_folder.h for its files, and
// checkpoint_file.h for their contents. Checksums detect torn or changed files.
// One process may save at a time, or one per shard; any number may load. Not
// thread-safe. On each rank that has a shard:
//
//   CheckpointStore store("runs/a", /*keep_last=*/3, /*shard=*/stage, 4);
//   RETURN_IF_ERROR(store.Save(mine));
//   ... // wait until all ranks have saved
//   if (stage == 0) RETURN_IF_ERROR(store.Prune());
class CheckpointStore {
 public:
  // Retains the `keep_last` >= 1 newest checkpoints. 0 <= shard < num_shards.
  CheckpointStore(std::string dir, int keep_last, int shard = 0,
                  int num_shards = 1);

  // Blocks until this rank's shard is on the disk. After an error, or a crash
  // of any rank, the folder's earlier checkpoints are unchanged and no
  // incomplete file replaces them. A checkpoint of the same step and number of
  // shards is replaced shard by shard. With one shard, also calls Prune().
  absl::Status Save(const Checkpoint& checkpoint);

  // Deletes older checkpoints and the remains of incomplete ones. Call when all
  // shards of the last Save are known to be saved, on one rank or on all.
  // Checkpoints of later steps, or of the same step in another layout, which
  // the next LoadLatest would prefer, are renamed to `<name>.superseded`
  // (SupersedeSet). FailedPrecondition, with nothing deleted, if a shard is
  // missing. Does nothing before the first Save.
  absl::Status Prune();

  // Passes the newest intact checkpoint of steps up to `last_step` to `load`,
  // for any number of shards; returns its step. Returns nullopt, without a
  // call, if the folder has none or does not exist. DataLoss from `load` also
  // means that the checkpoint is damaged; any other error ends the search. Each
  // newer checkpoint that was skipped adds a line to `warnings` naming the
  // faulty file and the reason. Errors: those of `load`; the folder cannot be
  // read; it has checkpoints but none is intact.
  absl::StatusOr<std::optional<int64_t>> LoadLatest(
      std::vector<std::string>* warnings, const LoadFunction& load,
      int64_t last_step = std::numeric_limits<int64_t>::max(),
      const CheckpointHeaders& headers = {});

  // Returns the headers that LoadLatest would read first, to be passed to
  // LoadLatest in other processes, which then do not open the files for them:
  // those of the newest checkpoint without missing files, up to `last_step`.
  CheckpointHeaders ReadLatestHeaders(
      int64_t last_step = std::numeric_limits<int64_t>::max()) const;

  // Returns whether the folder contains only incomplete checkpoints, and at
  // least one, as an interrupted first save leaves them.
  absl::StatusOr<bool> HasOnlyInterrupted() const;

  // Returns the path to which Save() writes this rank's shard for `step`.
  std::string Path(int64_t step) const;

 private:
  absl::Status FindSuperseded(int64_t step);
  absl::Status CheckAllSaved() const;

  const std::string dir_;
  const int keep_last_;
  const int shard_;
  const int num_shards_;
  std::optional<int64_t> saved_step_;      // of the last save
  std::vector<CheckpointSet> superseded_;  // by the last save
};

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_CHECKPOINT_CHECKPOINT_H_
