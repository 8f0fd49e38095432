// Linear layers whose weights are divided among the ranks of a group (Shoeybi
// et al. 2019, section 3). Two in a row, first by columns and then by rows,
// exchange activations once forward and once backward. With a group of one rank
// both are at::linear, to the last bit, also under autocast, whose dtype is
// also that of what is exchanged.
//
// Backward computes the weight's gradient while the input's is exchanged. With
// overlap_pieces above 1, rows are cut where a product needs the exchange or
// the exchange the product (Wang et al. 2023, "Overlap Communication with
// Dependent Computation via Decomposition"): the all-gathers of columns forward
// and of rows backward, under sequence parallelism; the sums of rows forward.
// No layer can be differentiated twice. What pads the last rank's tokens must
// be finite, as zeros are.
#ifndef RANKWISE_PARALLEL_TENSOR_LINEAR_H_
#define RANKWISE_PARALLEL_TENSOR_LINEAR_H_

#include <cstdint>

#include "parallel/tensor/regions.h"
#include "torch/types.h"

namespace rankwise {

// x W^T + b, of which every rank computes its outputs: x [B, tokens, inputs],
// weight [outputs / ranks, inputs], bias [outputs / ranks] or undefined, to [B,
// tokens, outputs / ranks]. Under sequence parallelism x is this rank's part of
// the tokens, [B, ceil(tokens / ranks), inputs]; else it may have any number of
// dimensions before the last.
torch::Tensor ColumnParallelLinear(const torch::Tensor& x,
                                   const torch::Tensor& weight,
                                   const torch::Tensor& bias, int64_t tokens,
                                   const TensorParallel& tp);

// x W^T + b, of which every rank has its inputs: x [B, tokens, inputs / ranks],
// weight [outputs, inputs / ranks], bias [outputs], whole on every rank and
// added once, or undefined, to [B, tokens, outputs]. Under sequence parallelism
// the result is this rank's part of the tokens, [B, ceil(tokens / ranks),
// outputs], and the bias has a gradient of this part alone.
torch::Tensor RowParallelLinear(const torch::Tensor& x,
                                const torch::Tensor& weight,
                                const torch::Tensor& bias,
                                const TensorParallel& tp);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_TENSOR_LINEAR_H_
