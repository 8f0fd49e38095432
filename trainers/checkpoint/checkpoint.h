// Checkpoints: one safetensors file per checkpoint, in a folder that keeps the
// last few.
#ifndef RANKWISE_TRAINERS_CHECKPOINT_CHECKPOINT_H_
#define RANKWISE_TRAINERS_CHECKPOINT_CHECKPOINT_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "torch/types.h"

namespace rankwise {

// Everything that a run needs to go on as if it had never stopped.
struct Checkpoint {
  int64_t step = 0;      // optimizer steps done
  int64_t epoch = 0;     // the epoch that `position` counts in, from 1
  int64_t position = 0;  // batches of that epoch already used

  // Free text, e.g. {"seed", "0"}, {"world_size", "2"}, {"config", "{...}"}.
  // Names that start with `rankwise.` belong to CheckpointStore.
  std::map<std::string, std::string> metadata;

  // By convention `model.conv1.weight`, `optimizer.exp_avg.conv1.weight`,
  // `rng.cpu`.
  std::vector<std::pair<std::string, torch::Tensor>> tensors;
};

// The checkpoints `step_<step>.safetensors` of one folder. Each carries a
// checksum over its tensors and metadata, so that a torn or changed file is
// told from a good one. One process may save at a time; any number may load.
// Not thread-safe.
//
//   CheckpointStore store("runs/a", /*keep_last=*/3);
//   std::vector<std::string> warnings;
//   auto latest = store.LoadLatest(&warnings);
//   if (!latest.ok()) return latest.status();
//   if (*latest) Restore(**latest);
class CheckpointStore {
 public:
  // Keeps the `keep_last` (at least 1) newest checkpoints. Touches no file.
  CheckpointStore(std::string dir, int keep_last);

  // Blocks until the checkpoint is on the disk; only then are older ones
  // deleted. After an error the folder's earlier checkpoints are as they were
  // and nothing half-written is left. Checkpoints of *later* steps (torn ones,
  // or another run's) would win at the next LoadLatest: they are set aside as
  // `<name>.superseded`, which nothing here reads or deletes.
  absl::Status Save(const Checkpoint& checkpoint);

  // The newest checkpoint that is whole; nullopt when the folder has none or
  // does not exist. Each newer file that had to be passed over adds a line to
  // `warnings` saying why. Errors: the folder cannot be read, or it has
  // checkpoints and none is whole.
  absl::StatusOr<std::optional<Checkpoint>> LoadLatest(
      std::vector<std::string>* warnings);

  // Where Save() writes the checkpoint of `step`.
  std::string Path(int64_t step) const;

 private:
  const std::string dir_;
  const int keep_last_;
};

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_CHECKPOINT_CHECKPOINT_H_
