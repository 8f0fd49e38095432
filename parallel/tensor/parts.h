// Conversion between tensors and the ranks' parts that are exchanged. Private
// to this folder.
#ifndef RANKWISE_PARALLEL_TENSOR_PARTS_H_
#define RANKWISE_PARALLEL_TENSOR_PARTS_H_

#include <cstdint>
#include <vector>

#include "parallel/tensor/regions.h"
#include "torch/types.h"

namespace rankwise::tensor {

// Stacks the parts of x along `dim`, the last ones padded with zeros: [ranks,
// ..., part, ...], contiguous. Copies only if necessary.
torch::Tensor Stack(const torch::Tensor& x, int64_t dim,
                    const TensorParallel& tp);
// Inverts Stack and removes the padding: `size` along `dim`, contiguous. The
// parts come in `pieces` along `dim`, each [ranks, ..., piece, ...].
torch::Tensor Unstack(std::vector<torch::Tensor> pieces, int64_t dim,
                      int64_t size);
// Concatenates `pieces` along `dim`.
torch::Tensor Join(std::vector<torch::Tensor> pieces, int64_t dim);

}  // namespace rankwise::tensor

#endif  // RANKWISE_PARALLEL_TENSOR_PARTS_H_
