#include <tuple>

#include "ATen/AccumulateType.h"
#include "ATen/TensorOperators.h"
#include "ATen/ops/argsort.h"
#include "ATen/ops/batch_norm_backward_elemt.h"
#include "ATen/ops/batch_norm_backward_reduce.h"
#include "ATen/ops/batch_norm_elemt.h"
#include "ATen/ops/batch_norm_gather_stats_with_counts.h"
#include "ATen/ops/batch_norm_stats.h"
#include "ATen/ops/cat.h"
#include "ATen/ops/empty.h"
#include "ATen/ops/full.h"
#include "ATen/ops/where.h"
#include "ATen/ops/zeros.h"
#include "ATen/ops/zeros_like.h"
#include "parallel/ddp/sync_batch_norm_kernels.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace rankwise {
namespace {

// Mean, inverse deviation and count, [2C + 1] in fp32 or fp64.
at::Tensor OwnMoments(const at::Tensor& x, double eps) {
  const int64_t channels = x.size(1);
  const at::TensorOptions options = x.options().dtype(
      at::toAccumulateType(x.scalar_type(), /*is_cuda=*/true));
  if (x.numel() == 0) {
    // Any finite deviation will do beside a count of 0.
    return at::cat({at::zeros({channels}, options),
                    at::full({channels}, 1, options), at::zeros({1}, options)});
  }
  const auto [mean, invstd] = at::batch_norm_stats(x, eps);
  return at::cat({mean, invstd, at::full({1}, x.numel() / channels, options)});
}

// [ranks, 2C + 1], the largest count first: the kernel that puts them together
// divides by the count so far, which must not be 0. Sorting, unlike leaving
// the empty ones out, does not ask the device how many there are, and so can be
// captured into a graph. Stable, so that all ranks have the same order.
at::Tensor GatherMoments(at::Tensor own, c10d::ProcessGroup& group) {
  at::Tensor all = at::empty({group.getSize() * own.numel()}, own.options());
  group._allgather_base(all, own)->wait();
  all = all.view({group.getSize(), own.numel()});
  const at::Tensor order =
      at::argsort(all.select(1, own.numel() - 1), /*stable=*/true, /*dim=*/0,
                  /*descending=*/true);
  return all.index_select(0, order);
}

class AtenKernels : public BatchNormKernels {
 public:
  BatchMoments Moments(const at::Tensor& x, double eps,
                       c10d::ProcessGroup& group) const override {
    const int64_t channels = x.size(1);
    const at::Tensor all = GatherMoments(OwnMoments(x, eps), group);
    const at::Tensor counts = all.select(1, 2 * channels).contiguous();
    // With momentum 1 running statistics become the batch's. They also make the
    // kernel count in their dtype: fp16 has no 4097.
    const at::Tensor mean_of_batch = at::zeros({channels}, all.options());
    const at::Tensor variance = at::zeros_like(mean_of_batch);
    const auto [mean, invstd] = at::batch_norm_gather_stats_with_counts(
        x, all.narrow(1, 0, channels), all.narrow(1, channels, channels),
        mean_of_batch, variance, /*momentum=*/1, eps, counts);
    return {mean, invstd,
            at::where(counts.sum() > 1, variance, at::zeros_like(variance)),
            counts.to(at::kInt)};
  }

  at::Tensor Normalize(const at::Tensor& x, const at::Tensor& weight,
                       const at::Tensor& bias, const BatchMoments& moments,
                       double eps) const override {
    return at::batch_norm_elemt(x, Mixed(weight, x, moments),
                                Mixed(bias, x, moments), moments.mean,
                                moments.invstd, eps);
  }

  BatchNormSums Sums(const at::Tensor& dy, const at::Tensor& x,
                     const at::Tensor& weight,
                     const BatchMoments& moments) const override {
    const bool affine = weight.defined();
    BatchNormSums sums;
    std::tie(sums.dy, sums.dy_xmu, sums.weight_gradient, sums.bias_gradient) =
        at::batch_norm_backward_reduce(dy, x, moments.mean, moments.invstd,
                                       Mixed(weight, x, moments),
                                       /*input_g=*/true, affine, affine);
    if (!affine) return sums;
    sums.weight_gradient = sums.weight_gradient.to(weight.scalar_type());
    sums.bias_gradient = sums.bias_gradient.to(weight.scalar_type());
    return sums;
  }

  at::Tensor InputGradient(const at::Tensor& dy, const at::Tensor& x,
                           const at::Tensor& weight,
                           const BatchMoments& moments,
                           const at::Tensor& sum_dy,
                           const at::Tensor& sum_dy_xmu) const override {
    return at::batch_norm_backward_elemt(
        dy, x, moments.mean, moments.invstd,
        weight.defined() ? weight.to(moments.mean.scalar_type()) : weight,
        sum_dy, sum_dy_xmu, moments.counts);
  }

 private:
  // The kernels take weights of the input's dtype or of the moments'.
  static at::Tensor Mixed(const at::Tensor& weight, const at::Tensor& x,
                          const BatchMoments& moments) {
    if (!weight.defined() || weight.scalar_type() == x.scalar_type())
      return weight;
    return weight.to(moments.mean.scalar_type());
  }
};

}  // namespace

const BatchNormKernels& AtenBatchNormKernels() {
  static const auto* const kKernels = new AtenKernels;
  return *kKernels;
}

}  // namespace rankwise
