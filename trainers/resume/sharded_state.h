// Parameters of which each data-parallel rank owns some rows (ZeRO), as needed
// by checkpoints and exports.
#ifndef RANKWISE_TRAINERS_RESUME_SHARDED_STATE_H_
#define RANKWISE_TRAINERS_RESUME_SHARDED_STATE_H_

#include <cstdint>
#include <map>
#include <string>

#include "parallel/comm/group.h"
#include "torch/types.h"

namespace rankwise {

// The rows that a rank owns of a parameter, or of its tp part of the parameter.
struct Shard {
  torch::Tensor rows;      // [rows here, ...], live; there may be none
  int64_t begin = 0;       // the first of them in the parameter
  int64_t whole_rows = 0;  // of the parameter
};

struct ShardedState {
  // By the parameter's name in the model. The optimizer's tensors for a
  // parameter have its shard's shape, or are scalars that are the same on every
  // rank. The model's own tensors of these parameters are never read or
  // written. Empty: every rank owns full parameters.
  std::map<std::string, Shard> shards = {};
  // The ranks that together own all rows; rank i of the group owns up to
  // ceil(whole_rows / ranks) rows, from i * ceil(whole_rows / ranks) on. There
  // may be several such groups with the same rows (HSDP): the first rank's is
  // saved.
  Group group = {};
};

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_RESUME_SHARDED_STATE_H_
