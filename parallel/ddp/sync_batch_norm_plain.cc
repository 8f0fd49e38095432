#include <vector>

#include "ATen/AccumulateType.h"
#include "ATen/TensorOperators.h"
#include "ATen/ops/cat.h"
#include "ATen/ops/full.h"
#include "ATen/ops/rsqrt.h"
#include "ATen/ops/sum.h"
#include "ATen/ops/var_mean.h"
#include "ATen/ops/zeros.h"
#include "parallel/ddp/sync_batch_norm_kernels.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace rankwise {
namespace {

at::ScalarType AccumulateType(const at::Tensor& x) {
  return at::toAccumulateType(x.scalar_type(), /*is_cuda=*/true);
}

std::vector<int64_t> AllButChannels(const at::Tensor& x) {
  std::vector<int64_t> dims{0};
  for (int64_t dim = 2; dim < x.dim(); ++dim) dims.push_back(dim);
  return dims;
}

// [C] to [1, C, 1, ...], beside `x`.
at::Tensor Beside(const at::Tensor& channels, const at::Tensor& x) {
  std::vector<int64_t> shape(x.dim(), 1);
  shape[1] = channels.numel();
  return channels.view(shape);
}

// Sums of 1, x and x^2, [2C + 1] in fp64: what was computed about the rank's
// own mean in the input's precision loses nothing by being added up there.
at::Tensor RawMoments(const at::Tensor& x) {
  const int64_t channels = x.size(1);
  const at::TensorOptions options = x.options().dtype(at::kDouble);
  if (x.numel() == 0) return at::zeros({2 * channels + 1}, options);
  const auto [variance, mean] = at::var_mean(
      x.to(AccumulateType(x)), AllButChannels(x), /*correction=*/0);
  const at::Tensor wide_mean = mean.to(at::kDouble);
  const int64_t count = x.numel() / channels;
  return at::cat({wide_mean * count,
                  (variance.to(at::kDouble) + wide_mean * wide_mean) * count,
                  at::full({1}, count, options)});
}

class PlainKernels : public BatchNormKernels {
 public:
  BatchMoments Moments(const at::Tensor& x, double eps,
                       c10d::ProcessGroup& group) const override {
    const int64_t channels = x.size(1);
    std::vector<at::Tensor> raw{RawMoments(x)};
    group.allreduce(raw)->wait();
    const at::Tensor count = raw[0].narrow(0, 2 * channels, 1);
    const at::Tensor divisor = count.clamp_min(1);
    const at::Tensor mean = raw[0].narrow(0, 0, channels) / divisor;
    const at::Tensor variance =
        (raw[0].narrow(0, channels, channels) / divisor - mean * mean)
            .clamp_min(0);
    const at::ScalarType type = AccumulateType(x);
    return {mean.to(type), at::rsqrt(variance + eps).to(type),
            (variance * count / (count - 1).clamp_min(1)).to(type), count};
  }

  at::Tensor Normalize(const at::Tensor& x, const at::Tensor& weight,
                       const at::Tensor& bias, const BatchMoments& moments,
                       double) const override {
    at::Tensor y = Centered(x, moments).mul_(Beside(Scale(weight, moments), x));
    if (bias.defined()) y.add_(Beside(bias.to(y.scalar_type()), x));
    return y.to(x.scalar_type());
  }

  BatchNormSums Sums(const at::Tensor& dy, const at::Tensor& x,
                     const at::Tensor& weight,
                     const BatchMoments& moments) const override {
    const std::vector<int64_t> dims = AllButChannels(x);
    const at::Tensor wide_dy = dy.to(AccumulateType(x));
    BatchNormSums sums;
    sums.dy = wide_dy.sum(dims);
    sums.dy_xmu = (Centered(x, moments).mul_(wide_dy)).sum(dims);
    if (!weight.defined()) return sums;
    sums.weight_gradient =
        (sums.dy_xmu * moments.invstd).to(weight.scalar_type());
    sums.bias_gradient = sums.dy.to(weight.scalar_type());
    return sums;
  }

  // dx = w / s * (dy - mean(dy) - (x - mean) / s^2 * mean(dy * (x - mean))):
  // Ioffe and Szegedy, Batch Normalization (2015), section 3.
  at::Tensor InputGradient(const at::Tensor& dy, const at::Tensor& x,
                           const at::Tensor& weight,
                           const BatchMoments& moments,
                           const at::Tensor& sum_dy,
                           const at::Tensor& sum_dy_xmu) const override {
    const at::Tensor count = moments.counts.sum().to(sum_dy.scalar_type());
    const at::Tensor slope = moments.invstd.square() * sum_dy_xmu / count;
    at::Tensor dx = Centered(x, moments).mul_(Beside(slope, x)).neg_();
    dx.add_(dy).sub_(Beside(sum_dy / count, x));
    return dx.mul_(Beside(Scale(weight, moments), x)).to(x.scalar_type());
  }

 private:
  static at::Tensor Centered(const at::Tensor& x, const BatchMoments& moments) {
    return x.to(moments.mean.scalar_type()) - Beside(moments.mean, x);
  }
  static at::Tensor Scale(const at::Tensor& weight,
                          const BatchMoments& moments) {
    if (!weight.defined()) return moments.invstd;
    return moments.invstd * weight.to(moments.invstd.scalar_type());
  }
};

}  // namespace

const BatchNormKernels& PlainBatchNormKernels() {
  static const auto* const kKernels = new PlainKernels;
  return *kKernels;
}

}  // namespace rankwise
