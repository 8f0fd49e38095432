// Parameters whose rows are divided among data-parallel ranks (ZeRO), as needed
// by checkpoints and exports.
#ifndef RANKWISE_TRAINERS_RESUME_SHARDED_STATE_H_
#define RANKWISE_TRAINERS_RESUME_SHARDED_STATE_H_

#include <cstdint>
#include <map>
#include <string>

#include "parallel/comm/group.h"
#include "torch/types.h"

namespace rankwise {

// A rank's rows of a parameter, or of its tp part of the parameter.
struct Shard {
  torch::Tensor rows;      // [rows here, ...], live; may be empty
  int64_t begin = 0;       // index of the first row in the parameter
  int64_t whole_rows = 0;  // of the parameter
};

struct ShardedState {
  // By the parameter's name in the model. The optimizer's tensors for a
  // parameter have its shard's shape, or are scalars that are equal on every
  // rank. The model's own tensors of these parameters are never read or
  // written. If empty, every rank owns full parameters.
  std::map<std::string, Shard> shards = {};
  // The ranks that together own all rows; rank i of the group owns up to
  // ceil(whole_rows / ranks) rows, starting at i * ceil(whole_rows / ranks).
  // Groups may have the same rows (HSDP): the first rank's group saves them.
  Group group = {};
};

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_RESUME_SHARDED_STATE_H_
