// Checkpoints: safetensors files, one or one per shard, in a folder that keeps
// the last few.
#ifndef RANKWISE_TRAINERS_CHECKPOINT_CHECKPOINT_H_
#define RANKWISE_TRAINERS_CHECKPOINT_CHECKPOINT_H_

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "torch/types.h"
#include "trainers/checkpoint/checkpoint_folder.h"

namespace rankwise {

// Everything that a run needs to go on as if it had never stopped.
struct Checkpoint {
  int64_t step = 0;      // optimizer steps done
  int64_t epoch = 0;     // the epoch that `position` counts in, from 1
  int64_t position = 0;  // batches of that epoch already used

  // Free text, such as {"config", "{...}"}, the same in every shard. Names that
  // start with `rankwise.` belong to CheckpointStore.
  std::map<std::string, std::string> metadata;

  // By convention `model.conv1.weight`, `optimizer.exp_avg.conv1.weight`,
  // `rng.cpu`.
  std::vector<std::pair<std::string, torch::Tensor>> tensors;
};

// What one rank wants of a checkpoint.
struct CheckpointRequest {
  // Names of the tensors that it needs; empty: all. Of shards other than the
  // first that have none of them, headers alone are read.
  std::set<std::string> tensors;
  // Checkpoints of later steps are not looked at.
  int64_t last_step = std::numeric_limits<int64_t>::max();
};

// The checkpoints of one folder; see checkpoint_folder.h for its files. Each
// file carries a checksum over its tensors and metadata, which shows that it is
// torn or was changed. One process may save at a time, or one per shard; any
// number may load. Not thread-safe. On each rank that has a shard:
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
  // half-written takes their place. With one shard it goes on to Prune().
  absl::Status Save(const Checkpoint& checkpoint);

  // To be called when all shards of the last Save are known to be saved, by one
  // rank or by all: deletes older checkpoints, and what is left of incomplete
  // ones. Those of later steps, or of the same in another layout, which would
  // win at the next LoadLatest, are set aside as `<name>.superseded`.
  // FailedPrecondition, with nothing deleted, when a shard is missing after
  // all. Does nothing before the first Save.
  absl::Status Prune();

  // The newest checkpoint that is whole, saved in any number of shards: the
  // tensors of all, the rest of shard 0. nullopt when the folder has none or
  // does not exist. Each newer one that had to be passed over adds a line to
  // `warnings` saying which file is at fault, and why: torn, missing, or of
  // another save than shard 0 (their metadata disagree). Errors: the folder
  // cannot be read, or it has checkpoints and none is whole.
  absl::StatusOr<std::optional<Checkpoint>> LoadLatest(
      std::vector<std::string>* warnings,
      const CheckpointRequest& request = {});

  // Where Save() writes this rank's shard of the checkpoint of `step`.
  std::string Path(int64_t step) const;

 private:
  absl::Status FindSuperseded(int64_t step);
  absl::Status CheckAllSaved(const std::vector<CheckpointSet>& sets) const;

  const std::string dir_;
  const int keep_last_;
  const int shard_;
  const int num_shards_;
  std::optional<int64_t> saved_step_;      // the last one
  std::vector<CheckpointSet> superseded_;  // by it
};

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_CHECKPOINT_CHECKPOINT_H_
