#include "trainers/loop/recompute.h"

#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <utility>

#include "parallel/autograd/once_differentiable.h"
#include "parallel/device/run_again.h"
#include "trainers/loop/objective.h"

namespace rankwise {
namespace {

struct Segment : torch::CustomClassHolder {
  Segment(Model::LayerForward any_forward, Precision any_precision,
          std::vector<torch::Tensor> any_buffers)
      : forward(std::move(any_forward)),
        precision(any_precision),
        buffers(std::move(any_buffers)) {}
  const Model::LayerForward forward;
  const Precision precision;
  const std::vector<torch::Tensor> buffers;
};

class RecomputeFunction : public OnceDifferentiable<RecomputeFunction> {
 public:
  static constexpr char kName[] = "Recomputed";

  static torch::Tensor forward(torch::autograd::AutogradContext* ctx,
                               const torch::Tensor& x,
                               const c10::intrusive_ptr<Segment>& segment) {
    ctx->save_for_backward({x});
    ctx->saved_data["segment"] = c10::IValue::make_capsule(segment);
    return segment->forward(x);
  }

  static torch::autograd::variable_list Gradients(
      torch::autograd::AutogradContext* ctx,
      const torch::autograd::variable_list& gradients) {
    const auto segment = c10::static_intrusive_pointer_cast<Segment>(
        ctx->saved_data.at("segment").toCapsule());
    const at::AutoGradMode with_gradients(true);
    const torch::Tensor x =
        ctx->get_saved_variables()[0].detach().requires_grad_();
    const torch::Tensor y = RunAgain(segment->buffers, [&] {
      const AutocastScope autocast(segment->precision, x.device().type());
      return segment->forward(x);
    });
    torch::autograd::backward({y}, {gradients[0]});
    return {x.grad(), torch::Tensor()};
  }
};

}  // namespace

torch::Tensor Recomputed(const Model::LayerForward& forward,
                         const torch::Tensor& x, Precision precision,
                         std::vector<torch::Tensor> buffers) {
  if (!at::GradMode::is_enabled() || !x.requires_grad()) return forward(x);
  return RecomputeFunction::apply(
      x, c10::make_intrusive<Segment>(forward, precision, std::move(buffers)));
}

}  // namespace rankwise
