#include "parallel/tensor/parts.h"

#include <utility>

#include "ATen/ops/cat.h"
#include "ATen/ops/constant_pad_nd.h"

namespace rankwise::tensor {

torch::Tensor Stack(const torch::Tensor& x, int64_t dim,
                    const TensorParallel& tp) {
  const int64_t part = PartSize(x.size(dim), tp);
  const int64_t padding = part * tp.size() - x.size(dim);
  std::vector<int64_t> pad(2 * (x.dim() - dim), 0);  // from the last dimension
  pad.back() = padding;
  const torch::Tensor padded = padding == 0 ? x : at::constant_pad_nd(x, pad);
  return padded.unflatten(dim, {tp.size(), part}).movedim(dim, 0).contiguous();
}

torch::Tensor Unstack(std::vector<torch::Tensor> pieces, int64_t dim,
                      int64_t size) {
  for (torch::Tensor& piece : pieces) piece = piece.movedim(0, dim);
  return Join(std::move(pieces), dim + 1)
      .flatten(dim, dim + 1)
      .narrow(dim, 0, size)
      .contiguous();
}

torch::Tensor Join(std::vector<torch::Tensor> pieces, int64_t dim) {
  return pieces.size() == 1 ? std::move(pieces[0]) : at::cat(pieces, dim);
}

}  // namespace rankwise::tensor
