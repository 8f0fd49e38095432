#include "trainers/layers/linear.h"

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/List.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/linear.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>
#include <string_view>

#include "parallel/autograd/autocast.h"
#include "parallel/autograd/once_differentiable.h"
#include "trainers/layers/linear_bf16.h"

namespace rankwise {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Returns x weight^T + bias by oneDNN; `bias` may be undefined.
torch::Tensor Product(const torch::Tensor& x, const torch::Tensor& weight,
                      const torch::Tensor& bias) {
  using Scalars = c10::List<std::optional<at::Scalar>>;
  static const auto product =
      c10::Dispatcher::singleton()
          .findSchemaOrThrow("mkldnn::_linear_pointwise", "")
          .typed<at::Tensor(const at::Tensor&, const at::Tensor&,
                            const std::optional<at::Tensor>&, std::string_view,
                            Scalars, std::optional<std::string_view>)>();
  return product.call(x, weight,
                      bias.defined() ? std::optional(bias) : std::nullopt,
                      /*attr=*/"none", Scalars(), /*algorithm=*/"");
}

// In fp32, or with x in bf16 and weights in fp32.
class LinearFunction : public OnceDifferentiable<LinearFunction> {
 public:
  static constexpr char kName[] = "Linear";

  static torch::Tensor forward(AutogradContext* ctx, const torch::Tensor& x,
                               const torch::Tensor& weight,
                               const torch::Tensor& bias) {
    ctx->save_for_backward({x, weight});
    return IsBf16(x) ? Bf16Linear(x, weight, bias) : Product(x, weight, bias);
  }

  static variable_list Gradients(AutogradContext* ctx,
                                 const variable_list& gradients) {
    const variable_list saved = ctx->get_saved_variables();
    const torch::Tensor &x = saved[0], &weight = saved[1];
    const bool bf16 = IsBf16(x);
    const torch::Tensor dy = bf16 ? gradients[0].contiguous() : gradients[0];
    torch::Tensor dx, dweight, dbias;
    if (ctx->needs_input_grad(0))
      dx = bf16 ? Bf16LinearInputGradient(dy, weight)
                : Product(dy, weight.t(), {});
    if (ctx->needs_input_grad(1))
      dweight =
          bf16 ? Bf16LinearWeightGradient(dy, x) : Product(dy.t(), x.t(), {});
    if (ctx->needs_input_grad(2))
      dbias = dy.sum(0, /*keepdim=*/false, at::kFloat);
    return {dx, dweight, dbias};
  }

 private:
  static bool IsBf16(const torch::Tensor& x) {
    return x.scalar_type() == at::kBFloat16;
  }
};

bool RunsInFp32(const torch::Tensor& x, const torch::Tensor& weight) {
  return x.is_cpu() && x.dim() == 2 && x.scalar_type() == at::kFloat &&
         AutocastType(x) == at::kFloat && weight.scalar_type() == at::kFloat &&
         at::hasMKLDNN() && at::globalContext().userEnabledMkldnn();
}

bool RunsInBf16(const torch::Tensor& x, const torch::Tensor& weight,
                const torch::Tensor& bias) {
  return x.is_cpu() && x.dim() == 2 && weight.scalar_type() == at::kFloat &&
         weight.is_contiguous() && bias.defined() &&
         bias.scalar_type() == at::kFloat &&
         at::autocast::is_autocast_enabled(at::kCPU) &&
         AutocastType(x) == at::kBFloat16 &&
         Bf16LinearSavesTime(x.size(0), x.size(1), weight.size(0));
}

}  // namespace

torch::Tensor Linear(const torch::Tensor& x, const torch::Tensor& weight,
                     const torch::Tensor& bias) {
  if (RunsInFp32(x, weight)) return LinearFunction::apply(x, weight, bias);
  if (RunsInBf16(x, weight, bias)) {
    return LinearFunction::apply(x.to(at::kBFloat16).contiguous(), weight,
                                 bias);
  }
  return at::linear(x, weight, bias);
}

}  // namespace rankwise
