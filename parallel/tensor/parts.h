// Ranks' parts of a tensor, as they are exchanged. Not for other rooms.
#ifndef RANKWISE_PARALLEL_TENSOR_PARTS_H_
#define RANKWISE_PARALLEL_TENSOR_PARTS_H_

#include <cstdint>
#include <vector>

#include "parallel/tensor/regions.h"
#include "torch/types.h"

namespace rankwise::tensor {

// The parts of x along `dim`, the last ones padded with zeros, one after the
// other: [ranks, ..., part, ...], contiguous. Copies where it must.
torch::Tensor Stack(const torch::Tensor& x, int64_t dim,
                    const TensorParallel& tp);
// The reverse, without the padding: `size` along `dim`, contiguous. The parts
// are cut into `pieces` along `dim`, each [ranks, ..., piece, ...].
torch::Tensor Unstack(std::vector<torch::Tensor> pieces, int64_t dim,
                      int64_t size);
// `pieces` along `dim` as one.
torch::Tensor Join(std::vector<torch::Tensor> pieces, int64_t dim);

}  // namespace rankwise::tensor

#endif  // RANKWISE_PARALLEL_TENSOR_PARTS_H_
