// What a folder of checkpoints holds, by the names of its files:
//
//   step_<step>.safetensors                           a checkpoint in one file
//   step_<step>.shard_<shard>_of_<shards>.safetensors one of its shards, from 0
//
// with `.tmp` after it while it is being written.
#ifndef RANKWISE_TRAINERS_CHECKPOINT_CHECKPOINT_FOLDER_H_
#define RANKWISE_TRAINERS_CHECKPOINT_CHECKPOINT_FOLDER_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace rankwise {

struct CheckpointName {
  int64_t step = 0;
  int shard = 0;
  int num_shards = 1;
};

std::string FormatCheckpointName(const CheckpointName& name);
// Nothing for what is no checkpoint's name.
std::optional<CheckpointName> ParseCheckpointName(const std::string& text);

// The files of one checkpoint: those of a step in one layout.
struct CheckpointSet {
  int64_t step = 0;
  int num_shards = 1;
  std::map<int, std::string> paths;  // by shard; some may be missing

  bool complete() const {
    return paths.size() == static_cast<size_t>(num_shards);
  }
  // The name of the first file that is missing.
  std::string MissingName() const;
};

// Newest first; of one step, the layout with the fewest shards first. None when
// the folder does not exist.
absl::StatusOr<std::vector<CheckpointSet>> ListCheckpointSets(
    const std::string& dir);

// Removes what killed saves of steps up to `last_step` left behind. The
// functions below may run on several ranks at a time: a file that is gone
// already is no error.
absl::Status RemoveLeftovers(const std::string& dir, int64_t last_step);

absl::Status RemoveSet(const CheckpointSet& set);
// Renames its files to `<name>.superseded`, which nothing here reads or
// deletes.
absl::Status SupersedeSet(const CheckpointSet& set);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_CHECKPOINT_CHECKPOINT_FOLDER_H_
