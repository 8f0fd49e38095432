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

  // Free text, e.g. {"seed", "0"}, {"world_size", "2"}, {"config", "{...}"}.
  // Names that start with `rankwise.` belong to CheckpointStore. In shards of
  // one checkpoint the same name has the same text; what tells two runs apart
  // belongs into every shard.
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
// file carries a checksum over its tensors and metadata, so that a torn or
// changed file is told from a good one. One process may save at a time, or one
// per shard; any number may load. Not thread-safe.
//
//   CheckpointStore store("runs/a", /*keep_last=*/3);
//   std::vector<std::string> warnings;
//   auto latest = store.LoadLatest(&warnings);
//   if (!latest.ok()) return latest.status();
//   if (*latest) Restore(**latest);
//
// In shards, on each rank that has one (their tensors together are the state):
//
//   CheckpointStore store("runs/a", 3, /*shard=*/stage, /*num_shards=*/4);
//   absl::Status saved = store.Save(mine);
//   ... // all ranks learn that all have saved
//   if (shard == 0) status = store.Prune();
class CheckpointStore {
 public:
  // Keeps the `keep_last` (at least 1) newest checkpoints. Touches no file.
  // 0 <= shard < num_shards.
  CheckpointStore(std::string dir, int keep_last, int shard = 0,
                  int num_shards = 1);

  // Blocks until this rank's shard is on the disk. After an error, or a crash
  // of any rank, the folder's earlier checkpoints are as they were and nothing
  // half-written takes their place. With one shard it goes on to Prune().
  absl::Status Save(const Checkpoint& checkpoint);

  // To be called when all shards of the last Save are known to be saved, by one
  // rank or by all: deletes older checkpoints, and what is left of incomplete
  // ones. Checkpoints that were there before and would win at the next
  // LoadLatest (of *later* steps, or of the same in another layout: torn ones,
  // or another run's) are set aside as `<name>.superseded`, which nothing here
  // reads or deletes. FailedPrecondition, with nothing deleted, when a shard is
  // missing after all. Does nothing before the first Save.
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
