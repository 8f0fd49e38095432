// What a collective does to data, given every rank's buffers: the reference
// semantics behind the fake backend.
#ifndef RANKWISE_PARALLEL_COMM_BACKENDS_FAKE_BACKEND_DATA_H_
#define RANKWISE_PARALLEL_COMM_BACKENDS_FAKE_BACKEND_DATA_H_

#include <string>
#include <vector>

#include "torch/csrc/distributed/c10d/Types.hpp"
#include "torch/types.h"

namespace rankwise {

// One rank's part in a collective of W ranks: n tensors at a time.
struct FakeCall {
  enum class Kind {
    kReduce,         // inputs[n] -> outputs[n]
    kBroadcast,      // inputs[n] of the root -> outputs[n]
    kGather,         // inputs[n] -> outputs[n * W], rank fastest
    kScatter,        // inputs[W] of the root -> outputs[1]
    kReduceScatter,  // inputs[n * W], rank fastest -> outputs[n]
    kAllToAll,       // inputs[W] -> outputs[W]
    kBarrier,
  };
  std::string name;  // as in an error message, "all_reduce"
  Kind kind = Kind::kBarrier;
  int root = -1;  // -1: every rank gets the result
  c10d::ReduceOp::RedOpType op = c10d::ReduceOp::SUM;
  std::vector<torch::Tensor> inputs = {};
  std::vector<torch::Tensor> outputs = {};
};

// Fills the outputs of the ranks `to` from the inputs of all ranks: `from[r]`
// is rank r's call. In a mirrored world all of them are one and the same call.
// Throws c10::Error when shapes do not fit.
void MoveFakeData(const std::vector<const FakeCall*>& from,
                  const std::vector<int>& to);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_COMM_BACKENDS_FAKE_BACKEND_DATA_H_
