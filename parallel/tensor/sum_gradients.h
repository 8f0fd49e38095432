// Sequence parallelism: gradients of parameters that are replicated but applied
// only to each rank's tokens.
#ifndef RANKWISE_PARALLEL_TENSOR_SUM_GRADIENTS_H_
#define RANKWISE_PARALLEL_TENSOR_SUM_GRADIENTS_H_

#include <vector>

#include "parallel/tensor/regions.h"
#include "torch/types.h"

namespace rankwise {

// Replaces the gradients of `parameters`, all of one dtype, by their sums over
// the ranks, with one all-reduce over a flat copy. A missing gradient
// contributes zeros. Blocks until the sums are in place (on an accelerator,
// blocks the current stream, not the host). Collective; does nothing without
// parameters or in a group of one.
void SumGradients(const std::vector<torch::Tensor>& parameters,
                  const TensorParallel& tp);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_TENSOR_SUM_GRADIENTS_H_
