#include "trainers/layers/gelu.h"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/gelu.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cstdint>

#include "parallel/autograd/once_differentiable.h"
#include "trainers/layers/values.h"
#include "trainers/layers/vector_loops.h"

namespace rankwise {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

template <typename T>
torch::Tensor Forward(const torch::Tensor& x) {
  torch::Tensor y = at::empty_like(x);
  ForRows(x.numel(), /*width=*/1, [&](int64_t begin, int64_t end) {
    BestLoops<T>().gelu(Values<T>(x) + begin, Values<T>(y) + begin,
                        end - begin);
  });
  return y;
}

template <typename T>
torch::Tensor Backward(const torch::Tensor& dy, const torch::Tensor& x) {
  torch::Tensor dx = at::empty_like(x);
  ForRows(x.numel(), /*width=*/1, [&](int64_t begin, int64_t end) {
    BestLoops<T>().gelu_backward(Values<T>(dy) + begin, Values<T>(x) + begin,
                                 Values<T>(dx) + begin, end - begin);
  });
  return dx;
}

class GeluFunction : public OnceDifferentiable<GeluFunction> {
 public:
  static constexpr char kName[] = "TanhGelu";

  static torch::Tensor forward(AutogradContext* ctx, const torch::Tensor& x) {
    ctx->save_for_backward({x});
    return x.scalar_type() == at::kFloat ? Forward<float>(x)
                                         : Forward<Bf16Bits>(x);
  }

  static variable_list Gradients(AutogradContext* ctx,
                                 const variable_list& gradients) {
    const torch::Tensor x = ctx->get_saved_variables()[0];
    const torch::Tensor dy = gradients[0].to(x.scalar_type()).contiguous();
    return {x.scalar_type() == at::kFloat ? Backward<float>(dy, x)
                                          : Backward<Bf16Bits>(dy, x)};
  }
};

}  // namespace

torch::Tensor TanhGelu(const torch::Tensor& x) {
  if (!HasLoops(x) || !x.is_contiguous()) return at::gelu(x, "tanh");
  return GeluFunction::apply(x);
}

}  // namespace rankwise
