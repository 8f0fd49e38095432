// A forward that is computed a second time, to recompute activations.
#ifndef RANKWISE_PARALLEL_DEVICE_RUN_AGAIN_H_
#define RANKWISE_PARALLEL_DEVICE_RUN_AGAIN_H_

#include <cstddef>
#include <utility>
#include <vector>

#include "torch/types.h"

namespace rankwise {

// Returns forward(), and restores `buffers`, such as batch norm's running
// statistics: the first forward has already counted this batch.
template <typename Forward>
at::Tensor RunAgain(const std::vector<at::Tensor>& buffers, Forward&& forward) {
  std::vector<at::Tensor> before;
  for (const at::Tensor& buffer : buffers) before.push_back(buffer.clone());
  at::Tensor output = std::forward<Forward>(forward)();
  // Bypasses autograd, which may have saved a buffer in the graph and would
  // refuse one that has changed, although no gradient depends on it.
  for (size_t i = 0; i < buffers.size(); ++i)
    buffers[i].variable_data().copy_(before[i]);
  return output;
}

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_DEVICE_RUN_AGAIN_H_
