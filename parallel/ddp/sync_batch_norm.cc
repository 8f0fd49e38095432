#include "parallel/ddp/sync_batch_norm.h"

#include <utility>

#include "ATen/TensorOperators.h"
#include "ATen/core/grad_mode.h"
#include "ATen/ops/scalar_tensor.h"
#include "ATen/ops/where.h"
#include "parallel/ddp/sync_batch_norm_function.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"
#include "torch/nn/functional/batchnorm.h"

namespace rankwise {
namespace {

// running += factor * (batch - running) where `learns`, a bool of the device.
void MoveTowards(torch::Tensor running, const torch::Tensor& batch,
                 const torch::Tensor& factor, const torch::Tensor& learns) {
  const torch::Tensor target =
      at::where(learns, batch.to(running.scalar_type()), running);
  running.add_((target - running) * factor);
}

}  // namespace

SyncBatchNormImpl::SyncBatchNormImpl(
    const BatchNormState& state, c10::intrusive_ptr<c10d::ProcessGroup> group)
    : torch::nn::Module("SyncBatchNorm"),
      options_(state.options),
      group_(std::move(group)) {
  const auto trains = [](const torch::Tensor& parameter) {
    return parameter.defined() && parameter.requires_grad();
  };
  // In the order of BatchNorm's own registration; undefined ones too.
  weight_ = register_parameter("weight", state.weight, trains(state.weight));
  bias_ = register_parameter("bias", state.bias, trains(state.bias));
  running_mean_ = register_buffer("running_mean", state.running_mean);
  running_var_ = register_buffer("running_var", state.running_var);
  num_batches_tracked_ =
      register_buffer("num_batches_tracked", state.num_batches_tracked);
}

torch::Tensor SyncBatchNormImpl::forward(const torch::Tensor& x) {
  if (is_training() && num_batches_tracked_.defined())
    num_batches_tracked_.add_(1);
  return is_training() && group_->getSize() > 1 ? ForwardTogether(x)
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
    // Without a momentum the mean over all batches so far; asking the device
    // for their number would wait for it.
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

}  // namespace rankwise
