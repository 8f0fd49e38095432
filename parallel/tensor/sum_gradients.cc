#include "parallel/tensor/sum_gradients.h"

#include "ATen/core/grad_mode.h"
#include "ATen/ops/_foreach_copy.h"
#include "ATen/ops/zeros_like.h"
#include "torch/csrc/utils/tensor_flatten.h"

namespace rankwise {

void SumGradients(const std::vector<torch::Tensor>& parameters,
                  const TensorParallel& tp) {
  if (parameters.empty() || tp.size() == 1) return;
  const at::NoGradGuard no_grad;
  std::vector<torch::Tensor> gradients;
  for (const torch::Tensor& parameter : parameters) {
    torch::Tensor& gradient = parameter.mutable_grad();
    if (!gradient.defined()) gradient = at::zeros_like(parameter);
    gradients.push_back(gradient);
  }
  const torch::Tensor sum =
      ReduceFromRanks(torch::utils::flatten_dense_tensors(gradients), tp);
  const auto sums = torch::utils::unflatten_dense_tensors(sum, gradients);
  at::_foreach_copy_(gradients, sums);  // one launch on a GPU
}

}  // namespace rankwise
