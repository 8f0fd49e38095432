// Linear layers whose weights are divided among the ranks of a group (Shoeybi
// et al. 2019, section 3). Two consecutive layers, the first divided by columns
// and the second by rows, exchange activations once forward and once backward.
// In a group of one rank both equal at::linear to the last bit. Under autocast,
// products and exchanges use its dtype.
//
// Backward computes the weight gradient while the input gradient is exchanged.
// With overlap_pieces > 1, rows are cut into pieces wherever a product depends
// on an exchange or vice versa (Wang et al. 2023, "Overlap Communication with
// Dependent Computation via Decomposition"): under sequence parallelism in the
// column layer's forward all-gathers and the row layer's backward all-gathers;
// always in the row layer's forward sums. Not twice differentiable. Padding of
// the last rank's tokens must be finite, such as zeros.
#ifndef RANKWISE_PARALLEL_TENSOR_LINEAR_H_
#define RANKWISE_PARALLEL_TENSOR_LINEAR_H_

#include <cstdint>

#include "parallel/tensor/regions.h"
#include "torch/types.h"

namespace rankwise {

// Returns x W^T + b with the outputs divided among the ranks: x [B, tokens,
// inputs], weight [outputs / ranks, inputs], bias [outputs / ranks] or
// undefined, to [B, tokens, outputs / ranks]. Under sequence parallelism x is
// this rank's part of the tokens, [B, ceil(tokens / ranks), inputs]; otherwise
// it may have any number of dimensions before the last.
torch::Tensor ColumnParallelLinear(const torch::Tensor& x,
                                   const torch::Tensor& weight,
                                   const torch::Tensor& bias, int64_t tokens,
                                   const TensorParallel& tp);

// Returns x W^T + b with the inputs divided among the ranks: x [B, tokens,
// inputs / ranks], weight [outputs, inputs / ranks], bias [outputs], replicated
// and added once, or undefined, to [B, tokens, outputs]. Under sequence
// parallelism the result is this rank's part of the tokens, [B, ceil(tokens /
// ranks), outputs], and the bias gradient covers only this part.
torch::Tensor RowParallelLinear(const torch::Tensor& x,
                                const torch::Tensor& weight,
                                const torch::Tensor& bias,
                                const TensorParallel& tp);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_TENSOR_LINEAR_H_
