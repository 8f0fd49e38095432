// One file of a checkpoint: tensors, and what a run must know about them, under
// a checksum.
#ifndef RANKWISE_TRAINERS_CHECKPOINT_CHECKPOINT_FILE_H_
#define RANKWISE_TRAINERS_CHECKPOINT_CHECKPOINT_FILE_H_

#include <cstdint>
#include <map>
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

// A checkpoint as it will stand in its file.
class CheckpointFile {
 public:
  // Copies only tensors that are not on the CPU or not contiguous.
  // InvalidArgument for metadata with a reserved name, and for a tensor that is
  // not dense.
  static absl::StatusOr<CheckpointFile> Encode(const Checkpoint& checkpoint,
                                               const CheckpointName& name);
  // Whole or not at all; blocks until it is on the disk.
  absl::Status Save(const std::string& path) const;

 private:
  std::vector<std::pair<std::string, torch::Tensor>> tensors_;
  std::map<std::string, std::string> metadata_;
};

// DataLoss, with the path, for a file that is torn, was changed, or is not what
// `name` says. Of a file without any of the tensors named in `needed` (empty:
// all are needed) the header alone is read: the result has no tensors, and a
// change of the others' bytes goes unnoticed.
absl::StatusOr<Checkpoint> LoadCheckpointFile(
    const std::string& path, const CheckpointName& name,
    const std::set<std::string>& needed = {});

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_CHECKPOINT_CHECKPOINT_FILE_H_
