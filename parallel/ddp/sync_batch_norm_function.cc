#include "parallel/ddp/sync_batch_norm_function.h"

#include <optional>
#include <vector>

#include "ATen/AccumulateType.h"
#include "ATen/TensorOperators.h"
#include "ATen/core/grad_mode.h"
#include "ATen/ops/cat.h"
#include "ATen/ops/full.h"
#include "ATen/ops/rsqrt.h"
#include "ATen/ops/sum.h"
#include "ATen/ops/var_mean.h"
#include "ATen/ops/zeros.h"
#include "c10/util/Exception.h"
#include "torch/csrc/autograd/custom_function.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace rankwise {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

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

// Of the whole batch: one all-reduce of raw moments in fp64, to which each rank
// adds what it computed about its own mean. A collective of `group`, whose
// ranks may hold batches of different sizes, empty ones too.
BatchMoments Moments(const at::Tensor& x, double eps,
                     c10d::ProcessGroup& group) {
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

at::Tensor Centered(const at::Tensor& x, const BatchMoments& moments) {
  return x.to(moments.mean.scalar_type()) - Beside(moments.mean, x);
}

at::Tensor Scale(const at::Tensor& weight, const BatchMoments& moments) {
  if (!weight.defined()) return moments.invstd;
  return moments.invstd * weight.to(moments.invstd.scalar_type());
}

// In x's dtype and memory format.
at::Tensor Normalize(const at::Tensor& x, const at::Tensor& weight,
                     const at::Tensor& bias, const BatchMoments& moments) {
  at::Tensor y = Centered(x, moments).mul_(Beside(Scale(weight, moments), x));
  if (bias.defined()) y.add_(Beside(bias.to(y.scalar_type()), x));
  return y.to(x.scalar_type());
}

// This rank's part of the backward. The sums are [C], in the moments' dtype;
// the gradients [C], in the weight's.
struct BackwardSums {
  at::Tensor dy;
  at::Tensor dy_xmu;  // of dy * (x - mean)
  at::Tensor weight_gradient, bias_gradient;
};

BackwardSums SumBackward(const at::Tensor& dy, const at::Tensor& x,
                         const at::Tensor& weight,
                         const BatchMoments& moments) {
  const std::vector<int64_t> dims = AllButChannels(x);
  const at::Tensor wide_dy = dy.to(AccumulateType(x));
  BackwardSums sums;
  sums.dy = wide_dy.sum(dims);
  sums.dy_xmu = Centered(x, moments).mul_(wide_dy).sum(dims);
  if (!weight.defined()) return sums;
  sums.weight_gradient =
      (sums.dy_xmu * moments.invstd).to(weight.scalar_type());
  sums.bias_gradient = sums.dy.to(weight.scalar_type());
  return sums;
}

// From sums over all ranks. dx = w / s * (dy - mean(dy) - (x - mean) / s^2 *
// mean(dy * (x - mean))): Ioffe and Szegedy, Batch Normalization (2015),
// section 3.
at::Tensor InputGradient(const at::Tensor& dy, const at::Tensor& x,
                         const at::Tensor& weight, const BatchMoments& moments,
                         const at::Tensor& sum_dy,
                         const at::Tensor& sum_dy_xmu) {
  const at::Tensor count = moments.count.to(sum_dy.scalar_type());
  const at::Tensor slope = moments.invstd.square() * sum_dy_xmu / count;
  at::Tensor dx = Centered(x, moments).mul_(Beside(slope, x)).neg_();
  dx.add_(dy).sub_(Beside(sum_dy / count, x));
  return dx.mul_(Beside(Scale(weight, moments), x)).to(x.scalar_type());
}

// What is no tensor of the function.
struct Setup {
  double eps;
  c10::intrusive_ptr<c10d::ProcessGroup> group;
  BatchMoments* moments;  // out
};

// The layout that the kernels are to find in everything that is shaped like x.
at::MemoryFormat FormatOf(const at::Tensor& x) {
  for (at::MemoryFormat format :
       {at::MemoryFormat::ChannelsLast, at::MemoryFormat::ChannelsLast3d}) {
    const int64_t dims = format == at::MemoryFormat::ChannelsLast ? 4 : 5;
    if (x.dim() == dims && x.is_contiguous(format)) return format;
  }
  return at::MemoryFormat::Contiguous;
}

class SyncBatchNormFunction
    : public torch::autograd::Function<SyncBatchNormFunction> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& any_x,
                            const std::optional<at::Tensor>& any_weight,
                            const std::optional<at::Tensor>& any_bias,
                            const Setup& setup) {
    const at::Tensor weight = any_weight.value_or(at::Tensor());
    const at::Tensor bias = any_bias.value_or(at::Tensor());
    const at::Tensor x = any_x.contiguous(FormatOf(any_x));
    const BatchMoments moments = Moments(x, setup.eps, *setup.group);
    ctx->save_for_backward({x, weight, moments.mean, moments.invstd,
                            moments.unbiased_variance, moments.count});
    ctx->saved_data["group"] = setup.group;
    *setup.moments = moments;
    return Normalize(x, weight, bias, moments);
  }

  static variable_list backward(AutogradContext* ctx,
                                const variable_list& gradients) {
    TORCH_CHECK(!at::GradMode::is_enabled(),
                "SyncBatchNorm has no second derivative; call backward without "
                "create_graph");
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1];
    const BatchMoments moments{saved[2], saved[3], saved[4], saved[5]};
    const at::Tensor dy = gradients[0].contiguous(FormatOf(x));
    const BackwardSums sums = SumBackward(dy, x, weight, moments);
    at::Tensor dx;
    if (ctx->needs_input_grad(0)) {
      const int64_t channels = x.size(1);
      std::vector<at::Tensor> both{at::cat({sums.dy, sums.dy_xmu})};
      ctx->saved_data["group"]
          .toCustomClass<c10d::ProcessGroup>()
          ->allreduce(both)
          ->wait();
      dx = InputGradient(dy, x, weight, moments, both[0].narrow(0, 0, channels),
                         both[0].narrow(0, channels, channels));
    }
    return {dx, sums.weight_gradient, sums.bias_gradient, at::Tensor()};
  }
};

}  // namespace

SyncedBatch SyncBatchNormForward(
    const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
    double eps, const c10::intrusive_ptr<c10d::ProcessGroup>& group) {
  TORCH_CHECK(
      x.dim() >= 2 && x.size(1) > 0 && at::isFloatingType(x.scalar_type()),
      "SyncBatchNorm takes floating-point inputs [B, C, ...] with at "
      "least one channel; got ",
      x.scalar_type(), " ", x.sizes());
  TORCH_CHECK(weight.defined() == bias.defined(),
              "SyncBatchNorm takes both a weight and a bias, or neither");
  SyncedBatch batch;
  // Function takes no undefined tensor but as an empty optional.
  const auto given = [](const at::Tensor& tensor) {
    return tensor.defined() ? std::optional<at::Tensor>(tensor) : std::nullopt;
  };
  batch.output = SyncBatchNormFunction::apply(
      x, given(weight), given(bias), Setup{eps, group, &batch.moments});
  return batch;
}

}  // namespace rankwise
