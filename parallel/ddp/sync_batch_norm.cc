#include "parallel/ddp/sync_batch_norm.h"

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ATen/AccumulateType.h"
#include "ATen/TensorOperators.h"
#include "ATen/core/grad_mode.h"
#include "ATen/ops/cat.h"
#include "ATen/ops/full.h"
#include "ATen/ops/rsqrt.h"
#include "ATen/ops/scalar_tensor.h"
#include "ATen/ops/sum.h"
#include "ATen/ops/var_mean.h"
#include "ATen/ops/where.h"
#include "ATen/ops/zeros.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "c10/util/Exception.h"
#include "parallel/autograd/once_differentiable.h"
#include "torch/csrc/autograd/custom_function.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"
#include "torch/nn/functional/batchnorm.h"
#include "torch/nn/modules/batchnorm.h"
#include "torch/nn/modules/container/moduledict.h"
#include "torch/nn/modules/container/modulelist.h"
#include "torch/nn/modules/container/sequential.h"

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

// Reshapes [C] to [1, C, 1, ...], which broadcasts to `x`.
at::Tensor AlignTo(const at::Tensor& channels, const at::Tensor& x) {
  std::vector<int64_t> shape(x.dim(), 1);
  shape[1] = channels.numel();
  return channels.view(shape);
}

// Returns the sums of x, x^2 and 1, [2C + 1] in fp64. Moments about the rank's
// own mean, computed in the input's precision, lose nothing by the conversion.
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

// Returns the moments of the whole batch by one all-reduce of raw moments in
// fp64, which each rank derives from the moments about its own mean. A
// collective of `group`; batch sizes may differ between ranks and be 0.
BatchMoments MomentsOf(const at::Tensor& x, double eps,
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
  return x.to(moments.mean.scalar_type()) - AlignTo(moments.mean, x);
}

at::Tensor Scale(const at::Tensor& weight, const BatchMoments& moments) {
  if (!weight.defined()) return moments.invstd;
  return moments.invstd * weight.to(moments.invstd.scalar_type());
}

// Returns the normalised x in its dtype and memory format.
at::Tensor Normalize(const at::Tensor& x, const at::Tensor& weight,
                     const at::Tensor& bias, const BatchMoments& moments) {
  at::Tensor y = Centered(x, moments).mul_(AlignTo(Scale(weight, moments), x));
  if (bias.defined()) y.add_(AlignTo(bias.to(y.scalar_type()), x));
  return y.to(x.scalar_type());
}

// Returns dx from sums over all ranks: dx = w / s * (dy - mean(dy) - (x - mean)
// / s^2 * mean(dy * (x - mean))): Ioffe and Szegedy, Batch Normalization
// (2015), section 3.
at::Tensor InputGradient(const at::Tensor& dy, const at::Tensor& x,
                         const at::Tensor& weight, const BatchMoments& moments,
                         const at::Tensor& sum_dy,
                         const at::Tensor& sum_dy_xmu) {
  const at::Tensor count = moments.count.to(sum_dy.scalar_type());
  const at::Tensor slope = moments.invstd.square() * sum_dy_xmu / count;
  at::Tensor dx = Centered(x, moments).mul_(AlignTo(slope, x)).neg_();
  dx.add_(dy).sub_(AlignTo(sum_dy / count, x));
  return dx.mul_(AlignTo(Scale(weight, moments), x)).to(x.scalar_type());
}

// Non-tensor arguments.
struct Setup {
  double eps;
  c10::intrusive_ptr<c10d::ProcessGroup> group;
  BatchMoments* moments;  // out
};

// Returns the memory format to use for every tensor shaped like x.
at::MemoryFormat FormatOf(const at::Tensor& x) {
  for (at::MemoryFormat format :
       {at::MemoryFormat::ChannelsLast, at::MemoryFormat::ChannelsLast3d}) {
    const int64_t dims = format == at::MemoryFormat::ChannelsLast ? 4 : 5;
    if (x.dim() == dims && x.is_contiguous(format)) return format;
  }
  return at::MemoryFormat::Contiguous;
}

class SyncBatchNormFunction : public OnceDifferentiable<SyncBatchNormFunction> {
 public:
  static constexpr char kName[] = "SyncBatchNorm";

  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& any_x,
                            const std::optional<at::Tensor>& any_weight,
                            const std::optional<at::Tensor>& any_bias,
                            const Setup& setup) {
    const at::Tensor weight = any_weight.value_or(at::Tensor());
    const at::Tensor bias = any_bias.value_or(at::Tensor());
    const at::Tensor x = any_x.contiguous(FormatOf(any_x));
    const BatchMoments moments = MomentsOf(x, setup.eps, *setup.group);
    ctx->save_for_backward({x, weight, moments.mean, moments.invstd,
                            moments.unbiased_variance, moments.count});
    ctx->saved_data["group"] = setup.group;
    *setup.moments = moments;
    return Normalize(x, weight, bias, moments);
  }

  static variable_list Gradients(AutogradContext* ctx,
                                 const variable_list& gradients) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1];
    const BatchMoments moments{saved[2], saved[3], saved[4], saved[5]};
    const at::Tensor dy = gradients[0].contiguous(FormatOf(x));
    // This rank's part of the sums, [C], in the moments' dtype.
    const std::vector<int64_t> dims = AllButChannels(x);
    const at::Tensor wide_dy = dy.to(AccumulateType(x));
    const at::Tensor sum_dy = wide_dy.sum(dims);
    const at::Tensor sum_dy_xmu = Centered(x, moments).mul_(wide_dy).sum(dims);
    at::Tensor dx, weight_gradient, bias_gradient;
    if (weight.defined()) {
      weight_gradient = (sum_dy_xmu * moments.invstd).to(weight.scalar_type());
      bias_gradient = sum_dy.to(weight.scalar_type());
    }
    if (ctx->needs_input_grad(0)) {
      const int64_t channels = x.size(1);
      std::vector<at::Tensor> both{at::cat({sum_dy, sum_dy_xmu})};
      ctx->saved_data["group"]
          .toCustomClass<c10d::ProcessGroup>()
          ->allreduce(both)
          ->wait();
      dx = InputGradient(dy, x, weight, moments, both[0].narrow(0, 0, channels),
                         both[0].narrow(0, channels, channels));
    }
    return {dx, weight_gradient, bias_gradient, at::Tensor()};
  }
};

// running += factor * (batch - running) if `learns`, a bool device tensor.
void MoveTowards(torch::Tensor running, const torch::Tensor& batch,
                 const torch::Tensor& factor, const torch::Tensor& learns) {
  const torch::Tensor target =
      at::where(learns, batch.to(running.scalar_type()), running);
  running.add_((target - running) * factor);
}

using torch::nn::Module;
using ModulePtr = std::shared_ptr<Module>;

// Returns the replacement for `module`, or nullptr if it is not a BatchNorm.
std::shared_ptr<SyncBatchNormImpl> MakeSyncBatchNorm(const Module& module,
                                                     const Group& group) {
  std::shared_ptr<SyncBatchNormImpl> synced;
  const auto try_as = [&](const auto* norm) {
    if (norm != nullptr)
      synced = std::make_shared<SyncBatchNormImpl>(*norm, group);
  };
  try_as(dynamic_cast<const torch::nn::BatchNorm1dImpl*>(&module));
  try_as(dynamic_cast<const torch::nn::BatchNorm2dImpl*>(&module));
  try_as(dynamic_cast<const torch::nn::BatchNorm3dImpl*>(&module));
  if (synced != nullptr) synced->train(module.is_training());
  return synced;
}

struct Replaced {
  std::string name;
  ModulePtr old_layer;
  std::shared_ptr<SyncBatchNormImpl> new_layer;
};

// Containers call their own list, not the registered children.
void ReplaceInContainer(Module& parent, const Replaced& layer) {
  if (auto* sequence = dynamic_cast<torch::nn::SequentialImpl*>(&parent)) {
    for (torch::nn::AnyModule& entry : *sequence) {
      if (entry.ptr() == layer.old_layer)
        entry = torch::nn::AnyModule(layer.new_layer);
    }
  } else if (auto* list = dynamic_cast<torch::nn::ModuleListImpl*>(&parent)) {
    for (ModulePtr& entry : *list) {
      if (entry == layer.old_layer) entry = layer.new_layer;
    }
  } else if (auto* dict = dynamic_cast<torch::nn::ModuleDictImpl*>(&parent)) {
    for (auto& entry : *dict) {
      if (entry.value() == layer.old_layer) entry.value() = layer.new_layer;
    }
  }
}

// Replaces the BatchNorm layers below `parent`, and adds them to `all`, keyed
// by the replaced layer.
void ConvertBelow(Module& parent, const std::string& prefix, const Group& group,
                  std::map<const Module*, Replaced>& all) {
  // A copy, because the loop replaces children.
  const auto children = parent.named_children();
  for (const auto& child : children) {
    const std::string name = absl::StrCat(prefix, child.key());
    auto layer = all.find(child.value().get());
    if (layer == all.end()) {
      auto synced = MakeSyncBatchNorm(*child.value(), group);
      if (synced == nullptr) {
        ConvertBelow(*child.value(), name + ".", group, all);
        continue;
      }
      layer = all.emplace(child.value().get(),
                          Replaced{name, child.value(), std::move(synced)})
                  .first;
    }
    parent.replace_module(child.key(), layer->second.new_layer);
    ReplaceInContainer(parent, layer->second);
  }
}

}  // namespace

SyncedBatch SyncBatchNormForward(const at::Tensor& x, const at::Tensor& weight,
                                 const at::Tensor& bias, double eps,
                                 const Group& group) {
  TORCH_CHECK(
      x.dim() >= 2 && x.size(1) > 0 && at::isFloatingType(x.scalar_type()),
      "SyncBatchNorm takes floating-point inputs [B, C, ...] with at "
      "least one channel; got ",
      x.scalar_type(), " ", x.sizes());
  TORCH_CHECK(weight.defined() == bias.defined(),
              "SyncBatchNorm takes both a weight and a bias, or neither");
  SyncedBatch batch;
  // Function accepts an undefined tensor only inside an optional.
  batch.output = SyncBatchNormFunction::apply(
      x, std::optional(weight), std::optional(bias),
      Setup{eps, group.process_group(), &batch.moments});
  return batch;
}

void SyncBatchNormImpl::Register() {
  const auto trains = [](const torch::Tensor& parameter) {
    return parameter.defined() && parameter.requires_grad();
  };
  // In BatchNorm's own registration order, including undefined tensors.
  register_parameter("weight", weight_, trains(weight_));
  register_parameter("bias", bias_, trains(bias_));
  register_buffer("running_mean", running_mean_);
  register_buffer("running_var", running_var_);
  register_buffer("num_batches_tracked", num_batches_tracked_);
}

torch::Tensor SyncBatchNormImpl::forward(const torch::Tensor& x) {
  if (is_training() && num_batches_tracked_.defined())
    num_batches_tracked_.add_(1);
  return is_training() && group_.size() > 1 ? ForwardTogether(x)
                                            : ForwardAlone(x);
}

torch::Tensor SyncBatchNormImpl::ForwardAlone(const torch::Tensor& x) {
  const bool by_batch = is_training() || !running_mean_.defined();
  double factor = options_.momentum().value_or(0);
  if (by_batch && running_mean_.defined() && !options_.momentum().has_value())
    factor = 1 / num_batches_tracked_.item<double>();
  return torch::nn::functional::detail::batch_norm(
      x, running_mean_, running_var_, weight_, bias_, by_batch, factor,
      options_.eps());
}

torch::Tensor SyncBatchNormImpl::ForwardTogether(const torch::Tensor& x) {
  const SyncedBatch batch =
      SyncBatchNormForward(x, weight_, bias_, options_.eps(), group_);
  if (running_mean_.defined()) {
    at::NoGradGuard no_grad;
    // Without a momentum, the mean over all batches so far. Reading their count
    // on the host would synchronise with the device.
    const torch::Tensor factor =
        options_.momentum().has_value()
            ? at::scalar_tensor(*options_.momentum(), torch::kDouble)
            : num_batches_tracked_.to(torch::kDouble).reciprocal();
    const torch::Tensor learns = batch.moments.count > 1;
    MoveTowards(running_mean_, batch.moments.mean, factor, learns);
    MoveTowards(running_var_, batch.moments.unbiased_variance, factor, learns);
  }
  return batch.output;
}

void SyncBatchNormImpl::pretty_print(std::ostream& stream) const {
  stream << "rankwise::SyncBatchNorm(" << options_.num_features() << ")";
}

absl::StatusOr<int64_t> ConvertToSyncBatchNorm(Module& model,
                                               const Group& group) {
  if (MakeSyncBatchNorm(model, group) != nullptr) {
    return absl::FailedPreconditionError(
        "the model itself is a batch norm and has no parent module in which to "
        "replace it; put it into a torch::nn::Sequential");
  }
  std::map<const Module*, Replaced> all;
  ConvertBelow(model, "", group, all);
  for (const auto& [module, layer] : all) {
    // The other owner of a layer would continue to call it.
    if (layer.old_layer.use_count() == 1) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "batch norm '", layer.name,
        "' cannot be replaced: its parent holds it by type, in addition to "
        "having registered it, and would go on calling it; hold it in a "
        "torch::nn::Sequential instead"));
  }
  return static_cast<int64_t>(all.size());
}

}  // namespace rankwise
