#include "trainers/layers/swiglu.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/silu_backward.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cstdint>
#include <vector>

#include "parallel/autograd/once_differentiable.h"
#include "trainers/layers/values.h"
#include "trainers/layers/vector_loops.h"

namespace rankwise {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

template <typename T>
torch::Tensor Forward(const torch::Tensor& x) {
  const int64_t n = x.size(-1) / 2;
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.back() = n;
  torch::Tensor y = at::empty(sizes, x.options());
  ForRows(x.numel() / (2 * n), n, [&](int64_t begin, int64_t end) {
    BestLoops<T>().swiglu(Values<T>(x) + begin * 2 * n, end - begin, n,
                          Values<T>(y) + begin * n);
  });
  return y;
}

template <typename T>
torch::Tensor Backward(const torch::Tensor& dy, const torch::Tensor& x) {
  const int64_t n = dy.size(-1);
  torch::Tensor dx = at::empty_like(x);
  ForRows(x.numel() / (2 * n), n, [&](int64_t begin, int64_t end) {
    BestLoops<T>().swiglu_backward(Values<T>(dy) + begin * n,
                                   Values<T>(x) + begin * 2 * n, end - begin, n,
                                   Values<T>(dx) + begin * 2 * n);
  });
  return dx;
}

class SwiGluFunction : public OnceDifferentiable<SwiGluFunction> {
 public:
  static constexpr char kName[] = "SwiGlu";

  static torch::Tensor forward(AutogradContext* ctx,
                               const torch::Tensor& any_x) {
    const torch::Tensor x = any_x.contiguous();
    ctx->save_for_backward({x});
    if (!HasLoops(x)) {
      const std::vector<torch::Tensor> halves = x.chunk(2, -1);
      return at::silu(halves[0]).mul_(halves[1]);
    }
    return x.scalar_type() == at::kFloat ? Forward<float>(x)
                                         : Forward<Bf16Bits>(x);
  }

  static variable_list Gradients(AutogradContext* ctx,
                                 const variable_list& gradients) {
    const torch::Tensor x = ctx->get_saved_variables()[0];
    const torch::Tensor dy = gradients[0].contiguous();
    if (!HasLoops(x)) {
      const std::vector<torch::Tensor> halves = x.chunk(2, -1);
      return {at::cat({at::silu_backward(dy * halves[1], halves[0]),
                       at::silu(halves[0]).mul_(dy)},
                      -1)};
    }
    return {x.scalar_type() == at::kFloat ? Backward<float>(dy, x)
                                          : Backward<Bf16Bits>(dy, x)};
  }
};

}  // namespace

torch::Tensor SwiGlu(const torch::Tensor& x) {
  TORCH_CHECK(x.size(-1) % 2 == 0, "SwiGlu of ", x.sizes(),
              " needs as many gates as values to gate");
  return SwiGluFunction::apply(x);
}

}  // namespace rankwise
