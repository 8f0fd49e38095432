// A model's weights in several safetensors files, in Hugging Face's layout:
//
//   model-00001-of-00002.safetensors   the tensors of the first shard
//   model-00002-of-00002.safetensors
//   model.safetensors.index.json       {"metadata": {"total_size": BYTES},
//                                       "weight_map": {TENSOR: FILE, ...}}
#ifndef RANKWISE_TRAINERS_CHECKPOINT_SAFETENSORS_INDEX_H_
#define RANKWISE_TRAINERS_CHECKPOINT_SAFETENSORS_INDEX_H_

#include <string>

#include "absl/status/status.h"

namespace rankwise {

// The name of a shard's file, to be written with SaveSafetensors. `shard`
// counts from 0; of one shard it is "model.safetensors".
std::string SafetensorsShardName(int shard, int num_shards);

// Writes the index of the `num_shards` files in `dir`, whole or not at all.
// Reads their headers, so all must be on the disk: one rank calls this when all
// have saved. InvalidArgument names a tensor that is in two files; NotFound or
// DataLoss a file that is missing or torn.
absl::Status SaveSafetensorsIndex(const std::string& dir, int num_shards);

// Removes from `dir` the weights of the same model in another number of shards,
// which an earlier run may have left: whoever loads the folder would take the
// older ones. Best effort.
void RemoveOtherExports(const std::string& dir, int num_shards);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_CHECKPOINT_SAFETENSORS_INDEX_H_
