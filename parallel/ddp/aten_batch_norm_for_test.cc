// For tests: what ATen's CUDA kernels of synchronised batch normalisation
// compute, on CPUs, where ATen has none. After
// aten/src/ATen/native/cuda/Normalization.cuh of PyTorch 2.11: what these
// refuse or spoil, the real ones do. Linking it registers them.

#include <cstdint>
#include <tuple>
#include <vector>

#include "ATen/Functions.h"
#include "ATen/TensorOperators.h"
#include "c10/util/Exception.h"
#include "torch/library.h"

namespace rankwise {
namespace {

using OptionalTensor = const std::optional<at::Tensor>&;
using Tensors2 = std::tuple<at::Tensor, at::Tensor>;
using Tensors4 = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

std::vector<int64_t> AllButChannels(const at::Tensor& x) {
  std::vector<int64_t> dims{0};
  for (int64_t dim = 2; dim < x.dim(); ++dim) dims.push_back(dim);
  return dims;
}

at::Tensor Beside(const at::Tensor& channels, const at::Tensor& x) {
  std::vector<int64_t> shape(x.dim(), 1);
  shape[1] = -1;
  return channels.view(shape);
}

bool Given(OptionalTensor tensor) {
  return tensor.has_value() && tensor->defined();
}

// One of the layouts that the kernels read, the same in both.
void CheckLayout(const at::Tensor& x, const at::Tensor& like) {
  TORCH_CHECK(x.strides() == like.strides(), "layouts differ");
  TORCH_CHECK(x.is_contiguous() ||
                  x.is_contiguous(at::MemoryFormat::ChannelsLast) ||
                  x.is_contiguous(at::MemoryFormat::ChannelsLast3d),
              "neither contiguous nor channels-last");
}

// Of the input's dtype or the moments'.
void CheckWeight(OptionalTensor weight, const at::Tensor& x) {
  if (!Given(weight)) return;
  TORCH_CHECK(weight->scalar_type() == x.scalar_type() ||
                  (at::isReducedFloatingType(x.scalar_type()) &&
                   weight->scalar_type() == at::kFloat),
              "weight of ", weight->scalar_type());
}

Tensors2 Stats(const at::Tensor& x, double eps) {
  CheckLayout(x, x);
  TORCH_CHECK(x.numel() > 0, "no values");
  const auto [variance, mean] =
      at::var_mean(x.to(at::kFloat), AllButChannels(x), /*correction=*/0);
  return {mean, at::rsqrt(variance + eps)};
}

// Rank after rank, as the kernel does: a count of 0 in front divides by 0.
Tensors2 GatherStats(const at::Tensor& x, const at::Tensor& means,
                     const at::Tensor& invstds, OptionalTensor running_mean,
                     OptionalTensor running_var, double momentum, double eps,
                     const at::Tensor& counts) {
  const at::ScalarType type =
      Given(running_mean) ? running_mean->scalar_type() : x.scalar_type();
  TORCH_CHECK(counts.scalar_type() == type && means.scalar_type() == at::kFloat,
              "counts of ", counts.scalar_type(), " instead of ", type);
  at::Tensor average = at::zeros_like(means[0]), sum = at::zeros_like(average);
  int64_t n = 0;
  for (int64_t i = 0; i < means.size(0); ++i) {
    const auto count = counts[i].item<float>();
    const float factor = 1.0F / (static_cast<float>(n) + count);
    const at::Tensor own = (invstds[i].reciprocal().square() - eps) * count;
    sum = sum + own + (average - means[i]).square() * n * count * factor;
    average = average * n * factor + means[i] * count * factor;
    n += static_cast<int64_t>(count);
  }
  if (Given(running_mean)) {
    running_mean->mul_(1 - momentum).add_(average * momentum);
    running_var->mul_(1 - momentum).add_(sum / (n - 1) * momentum);
  }
  return {average, at::rsqrt(sum / n + eps)};
}

at::Tensor Elemt(const at::Tensor& x, OptionalTensor weight,
                 OptionalTensor bias, const at::Tensor& mean,
                 const at::Tensor& invstd, double) {
  CheckLayout(x, x);
  CheckWeight(weight, x);
  CheckWeight(bias, x);
  at::Tensor y = (x.to(at::kFloat) - Beside(mean, x)) * Beside(invstd, x);
  if (Given(weight)) y = y * Beside(*weight, x) + Beside(*bias, x);
  return y.to(x.scalar_type());
}

Tensors4 BackwardReduce(const at::Tensor& dy, const at::Tensor& x,
                        const at::Tensor& mean, const at::Tensor& invstd,
                        OptionalTensor weight, bool, bool weight_g, bool) {
  CheckLayout(dy, x);
  CheckWeight(weight, x);
  const at::Tensor wide = dy.to(at::kFloat);
  const at::Tensor sum = wide.sum(AllButChannels(x));
  const at::Tensor sum_xmu =
      (wide * (x.to(at::kFloat) - Beside(mean, x))).sum(AllButChannels(x));
  if (!weight_g) return {sum, sum_xmu, at::Tensor(), at::Tensor()};
  return {sum, sum_xmu, (sum_xmu * invstd).to(weight->scalar_type()),
          sum.to(weight->scalar_type())};
}

at::Tensor BackwardElemt(const at::Tensor& dy, const at::Tensor& x,
                         const at::Tensor& mean, const at::Tensor& invstd,
                         OptionalTensor weight, const at::Tensor& sum_dy,
                         const at::Tensor& sum_dy_xmu,
                         const at::Tensor& counts) {
  CheckLayout(dy, x);
  TORCH_CHECK(counts.scalar_type() == at::kInt && counts.is_contiguous(),
              "counts are read as int");
  TORCH_CHECK(!Given(weight) || weight->scalar_type() == at::kFloat,
              "weight of ", weight->scalar_type());
  const at::Tensor n = counts.sum().to(at::kFloat);
  const at::Tensor scale = Given(weight) ? invstd * *weight : invstd;
  const at::Tensor slope = invstd.square() * sum_dy_xmu / n;
  return ((dy - Beside(sum_dy / n, x) -
           (x.to(at::kFloat) - Beside(mean, x)) * Beside(slope, x)) *
          Beside(scale, x))
      .to(x.scalar_type());
}

TORCH_LIBRARY_IMPL(aten, CPU, library) {
  library.impl("batch_norm_stats", Stats);
  library.impl("batch_norm_gather_stats_with_counts", GatherStats);
  library.impl("batch_norm_elemt", Elemt);
  library.impl("batch_norm_backward_reduce", BackwardReduce);
  library.impl("batch_norm_backward_elemt", BackwardElemt);
}

}  // namespace
}  // namespace rankwise
