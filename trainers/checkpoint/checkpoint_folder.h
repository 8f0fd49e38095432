// Files in a folder of checkpoints:
//
//   step_<step>.safetensors                           a checkpoint in one file
//   step_<step>.shard_<shard>_of_<shards>.safetensors one of its shards, from 0
//
// The shards' headers together are the index of the checkpoint's contents
// (checkpoint_file.h). And the model's weights alone, in one file or in Hugging
// Face's layout:
//
//   model.safetensors
//   model-00001-of-00002.safetensors   the tensors of the first shard
//   model-00002-of-00002.safetensors
//   model.safetensors.index.json       {"metadata": {"total_size": BYTES},
//                                       "weight_map": {TENSOR: FILE, ...}}
//
// Each has the suffix `.<process id>.tmp` while it is being written.
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

// Creates the folder if it is missing; InvalidArgument if it is not writable.
absl::Status MakeCheckpointFolder(const std::string& dir);

struct CheckpointName {
  int64_t step = 0;
  int shard = 0;
  int num_shards = 1;
};

std::string FormatCheckpointName(const CheckpointName& name);
// Returns nullopt if `text` is not the name of a checkpoint file.
std::optional<CheckpointName> ParseCheckpointName(const std::string& text);

// The files of one checkpoint: those of one step and one layout.
struct CheckpointSet {
  int64_t step = 0;
  int num_shards = 1;
  std::map<int, std::string> paths;  // by shard; some may be missing

  bool complete() const {
    return paths.size() == static_cast<size_t>(num_shards);
  }
  // Returns the name of the first missing file.
  std::string MissingName() const;
};

// Newest first; for equal steps, the layout with the fewest shards first. Empty
// if the folder does not exist.
absl::StatusOr<std::vector<CheckpointSet>> ListCheckpointSets(
    const std::string& dir);

// Removes the remains of killed saves of steps up to `last_step`. The functions
// below may run on several ranks at a time: they ignore missing files.
absl::Status RemoveLeftovers(const std::string& dir, int64_t last_step);

absl::Status RemoveSet(const CheckpointSet& set);

// Returns the sets of steps up to `saved_step` that can be removed: incomplete
// ones, and those older than the newest `keep` >= 1. `sets` must be sorted,
// newest first. The checkpoint of `saved_step` in `num_shards` shards counts as
// complete even if `sets`, from a stale NFS listing, lacks some or all of it.
std::vector<CheckpointSet> SetsToRemove(const std::vector<CheckpointSet>& sets,
                                        int64_t saved_step, int num_shards,
                                        int keep);
// Renames its files to `<name>.superseded`, replacing earlier files of that
// name. No other function here reads or deletes them.
absl::Status SupersedeSet(const CheckpointSet& set);

// Calls SupersedeSet for all checkpoints in `dir`, so that restarts of a run
// that starts from the beginning do not continue from them. Reports it on
// stdout. The folder may be missing.
absl::Status SetAsideCheckpoints(const std::string& dir);

// Returns the name of a shard's file of weights, for SaveSafetensors. `shard`
// counts from 0; the only shard is "model.safetensors".
std::string SafetensorsShardName(int shard, int num_shards);

// Writes the index of the `num_shards` files in `dir` atomically. Reads their
// headers, so all must be on the disk: one rank calls this after all have
// saved. InvalidArgument names a tensor that is in two files; NotFound or
// DataLoss a file that is missing or torn.
absl::Status SaveSafetensorsIndex(const std::string& dir, int num_shards);

// Removes from `dir` the temporary files of killed exports, and weights that an
// earlier run exported in another number of shards: a program that loads the
// folder might read those instead. Ignores errors.
void RemoveOtherExports(const std::string& dir, int num_shards);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_CHECKPOINT_CHECKPOINT_FOLDER_H_
