// Parameters of which each data-parallel rank owns some rows (ZeRO), as far as
// checkpoints and exports have to know them.
#ifndef RANKWISE_TRAINERS_RESUME_SHARDED_STATE_H_
#define RANKWISE_TRAINERS_RESUME_SHARDED_STATE_H_

#include <cstdint>
#include <map>
#include <string>

#include "parallel/comm/group.h"
#include "torch/types.h"

namespace rankwise {

// What a rank owns of a parameter: of a model divided along tp, of its part.
struct Shard {
  torch::Tensor rows;      // [rows here, ...], live; there may be none
  int64_t begin = 0;       // the first of them in the parameter
  int64_t whole_rows = 0;  // of the parameter
};

struct ShardedState {
  // By the parameter's name in the model. The tensors that the optimizer keeps
  // of one have its shard's shape, or are scalars that are the same on every
  // rank. Of these parameters the model's own tensors are never read or
  // written. Empty: every rank owns whole parameters.
  std::map<std::string, Shard> shards = {};
  // The ranks that together own all rows; the one at place i those from
  // i * ceil(whole_rows / ranks) on, up to as many. There may be several such
  // groups, which own the same (HSDP): the first rank's is saved.
  Group group = {};
};

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_RESUME_SHARDED_STATE_H_
