// The tensors of a model that data parallelism looks after.
#ifndef RANKWISE_PARALLEL_DDP_MODEL_STATE_H_
#define RANKWISE_PARALLEL_DDP_MODEL_STATE_H_

#include <string>
#include <vector>

#include "torch/types.h"

namespace torch::nn {
class Module;
}

namespace rankwise {

class Communicator;

struct NamedTensor {
  std::string name;  // "features.0.weight"
  torch::Tensor tensor;
  bool sparse_gradient = false;  // an Embedding's with sparse(true)
};

// All parameters respectively buffers, a module's own before its children's, in
// the order of registration: Python's order. A tensor registered twice appears
// once, under its first name.
std::vector<NamedTensor> ModelParameters(const torch::nn::Module& module);
std::vector<NamedTensor> ModelBuffers(const torch::nn::Module& module);

// Overwrites every rank's tensors with rank 0's, many at a time. A collective
// call; throws c10::Error.
void BroadcastFromRankZero(const std::vector<NamedTensor>& tensors,
                           Communicator& communicator);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_DDP_MODEL_STATE_H_
