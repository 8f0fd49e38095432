// Sequence parallelism: gradients of parameters that every rank has whole and
// uses on its tokens.
#ifndef RANKWISE_PARALLEL_TENSOR_SUM_GRADIENTS_H_
#define RANKWISE_PARALLEL_TENSOR_SUM_GRADIENTS_H_

#include <vector>

#include "parallel/tensor/regions.h"
#include "torch/types.h"

namespace rankwise {

// Replaces the gradient of each of `parameters`, which are all of one dtype, by
// the sum of the ranks': one all-reduce over a flat copy. A parameter without a
// gradient counts as zeros. Blocks until the sums are in place (on an
// accelerator the current stream, not the host). Collective; does nothing for
// no parameters or a group of one.
void SumGradients(const std::vector<torch::Tensor>& parameters,
                  const TensorParallel& tp);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_TENSOR_SUM_GRADIENTS_H_
