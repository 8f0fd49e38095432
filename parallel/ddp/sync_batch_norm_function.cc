#include "parallel/ddp/sync_batch_norm_function.h"

#include <optional>
#include <vector>

#include "ATen/core/grad_mode.h"
#include "ATen/ops/cat.h"
#include "ATen/ops/empty_like.h"
#include "ATen/ops/zeros.h"
#include "ATen/ops/zeros_like.h"
#include "c10/util/Exception.h"
#include "torch/csrc/autograd/custom_function.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace rankwise {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// What is no tensor of the function.
struct Setup {
  double eps;
  c10::intrusive_ptr<c10d::ProcessGroup> group;
  const BatchNormKernels* kernels;
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

BatchNormSums NoSums(const at::Tensor& weight, const BatchMoments& moments) {
  BatchNormSums sums;
  sums.dy = at::zeros_like(moments.mean);
  sums.dy_xmu = at::zeros_like(moments.mean);
  if (!weight.defined()) return sums;
  sums.weight_gradient = at::zeros_like(weight);
  sums.bias_gradient = at::zeros_like(weight);
  return sums;
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
    const BatchMoments moments =
        setup.kernels->Moments(x, setup.eps, *setup.group);
    ctx->save_for_backward({x, weight, moments.mean, moments.invstd,
                            moments.unbiased_variance, moments.counts});
    ctx->saved_data["group"] = setup.group;
    ctx->saved_data["kernels"] = reinterpret_cast<int64_t>(setup.kernels);
    *setup.moments = moments;
    if (x.numel() == 0) return at::empty_like(x);
    return setup.kernels->Normalize(x, weight, bias, moments, setup.eps);
  }

  static variable_list backward(AutogradContext* ctx,
                                const variable_list& gradients) {
    TORCH_CHECK(!at::GradMode::is_enabled(),
                "SyncBatchNorm has no second derivative; call backward without "
                "create_graph");
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1];
    const BatchMoments moments{saved[2], saved[3], saved[4], saved[5]};
    const auto& kernels = *reinterpret_cast<const BatchNormKernels*>(
        ctx->saved_data["kernels"].toInt());
    const at::Tensor dy = gradients[0].contiguous(FormatOf(x));
    const BatchNormSums sums = x.numel() == 0
                                   ? NoSums(weight, moments)
                                   : kernels.Sums(dy, x, weight, moments);
    at::Tensor dx;
    if (ctx->needs_input_grad(0)) {
      const int64_t channels = x.size(1);
      std::vector<at::Tensor> both{at::cat({sums.dy, sums.dy_xmu})};
      ctx->saved_data["group"]
          .toCustomClass<c10d::ProcessGroup>()
          ->allreduce(both)
          ->wait();
      dx = x.numel() == 0
               ? at::empty_like(x)
               : kernels.InputGradient(dy, x, weight, moments,
                                       both[0].narrow(0, 0, channels),
                                       both[0].narrow(0, channels, channels));
    }
    return {dx, sums.weight_gradient, sums.bias_gradient, at::Tensor()};
  }
};

}  // namespace

SyncedBatch SyncBatchNormForward(
    const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
    double eps, const c10::intrusive_ptr<c10d::ProcessGroup>& group,
    const BatchNormKernels& kernels) {
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
  batch.output =
      SyncBatchNormFunction::apply(x, given(weight), given(bias),
                                   Setup{eps, group, &kernels, &batch.moments});
  return batch;
}

}  // namespace rankwise
