#include "parallel/pipeline/stage_runner.h"

#include <utility>

#include "ATen/core/grad_mode.h"
#include "ATen/ops/ones_like.h"
#include "ATen/ops/zeros_like.h"
#include "c10/util/Exception.h"
#include "torch/csrc/autograd/autograd.h"

namespace rankwise {

StageRunner::StageRunner(Stage* stage, bool is_last, bool recompute)
    : stage_(stage), is_last_(is_last), recompute_(recompute) {}

at::Tensor StageRunner::Forward(int micro_batch, const at::Tensor& input) {
  Kept kept;
  if (input.defined()) kept.input = input.detach().requires_grad_();
  const at::AutoGradMode grad_mode(!recompute_);
  const at::Tensor output = Compute(micro_batch, kept.input);
  if (!recompute_) kept.output = output;
  const bool is_new = kept_.emplace(micro_batch, std::move(kept)).second;
  TORCH_CHECK(is_new, "forward of micro-batch ", micro_batch, " ran twice");
  return output.detach();
}

at::Tensor StageRunner::Backward(int micro_batch,
                                 const at::Tensor& grad_output) {
  Kept& kept = Find(micro_batch);
  const at::Tensor output = OutputOf(micro_batch, kept);
  const at::Tensor input = kept.input;
  kept_.erase(micro_batch);
  // A first stage without parameters has nothing to compute.
  if (!output.requires_grad()) return at::Tensor();
  torch::autograd::backward({output}, {RootGradient(output, grad_output)});
  if (!input.defined() || input.grad().defined()) {
    return input.defined() ? input.grad() : at::Tensor();
  }
  return at::zeros_like(input);
}

at::Tensor StageRunner::InputGrad(int micro_batch,
                                  const at::Tensor& grad_output) {
  Kept& kept = Find(micro_batch);
  TORCH_CHECK(kept.backward == nullptr, "I of micro-batch ", micro_batch,
              " ran twice");
  const at::Tensor output = OutputOf(micro_batch, kept);
  kept.output.reset();
  const at::Tensor input = std::move(kept.input);
  if (!output.requires_grad()) return at::Tensor();
  kept.backward = std::make_unique<SplitBackward>(output, input);
  return kept.backward->InputGrad(RootGradient(output, grad_output));
}

void StageRunner::WeightGrad(int micro_batch) {
  const std::unique_ptr<SplitBackward> backward =
      std::move(Find(micro_batch).backward);
  kept_.erase(micro_batch);
  if (backward != nullptr) backward->WeightGrad();
}

at::Tensor StageRunner::Evaluate(int micro_batch, const at::Tensor& input) {
  const at::NoGradGuard no_grad;
  at::Tensor output = stage_->Forward(micro_batch, input);
  if (!is_last_) CheckAnnounced(micro_batch, output);
  return output;
}

StageRunner::Kept& StageRunner::Find(int micro_batch) {
  const auto kept = kept_.find(micro_batch);
  TORCH_CHECK(kept != kept_.end(), "backward of micro-batch ", micro_batch,
              " before its forward, or twice");
  return kept->second;
}

at::Tensor StageRunner::Compute(int micro_batch, const at::Tensor& input) {
  at::Tensor output = stage_->Forward(micro_batch, input);
  if (is_last_) {
    TORCH_CHECK(output.dim() == 0,
                "the last stage must return its share of the loss, a scalar; "
                "it returned a tensor of shape ",
                output.sizes());
  } else {
    CheckAnnounced(micro_batch, output);
  }
  return output;
}

// The next stage's rank waits for just that many bytes.
void StageRunner::CheckAnnounced(int micro_batch,
                                 const at::Tensor& output) const {
  const std::vector<int64_t> shape = stage_->OutputShape(micro_batch);
  const at::ScalarType type = stage_->OutputType();
  TORCH_CHECK(output.sizes() == shape && output.scalar_type() == type,
              "a stage announced an output of shape ", at::IntArrayRef(shape),
              " and type ", type, " for micro-batch ", micro_batch,
              " and returned ", output.sizes(), " of type ",
              output.scalar_type());
}

at::Tensor StageRunner::Recompute(int micro_batch, const at::Tensor& input) {
  const std::vector<at::Tensor> buffers = stage_->Buffers();
  std::vector<at::Tensor> before;
  for (const at::Tensor& buffer : buffers) before.push_back(buffer.clone());
  const at::AutoGradMode grad_mode(true);
  at::Tensor output = Compute(micro_batch, input);
  // Past autograd, which may have saved a buffer in the graph and would refuse
  // one that has changed, although no gradient depends on it.
  for (size_t i = 0; i < buffers.size(); ++i)
    buffers[i].variable_data().copy_(before[i]);
  return output;
}

const at::Tensor& StageRunner::OutputOf(int micro_batch, Kept& kept) {
  if (!kept.output.defined()) kept.output = Recompute(micro_batch, kept.input);
  return kept.output;
}

at::Tensor StageRunner::RootGradient(const at::Tensor& output,
                                     const at::Tensor& grad_output) const {
  return is_last_ ? at::ones_like(output) : grad_output;
}

}  // namespace rankwise
