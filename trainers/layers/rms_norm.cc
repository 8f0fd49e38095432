#include "trainers/layers/rms_norm.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/rms_norm.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "parallel/autograd/autocast.h"
#include "parallel/autograd/once_differentiable.h"
#include "trainers/layers/values.h"
#include "trainers/layers/vector_loops.h"

namespace rankwise {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Rows of a partial sum of weight gradients. Constant, so that results do not
// depend on the number of threads.
constexpr int64_t kBlockRows = 64;

template <typename X, typename Y>
const RmsNormLoops<X, Y>& Loops() {
  if constexpr (std::is_same_v<X, Y>) {
    return BestLoops<Y>().rms_norm;
  } else {
    return BestLoops<Y>().rms_norm_of_floats;
  }
}

template <typename X, typename Y>
void Forward(const torch::Tensor& x, const torch::Tensor& weight,
             double epsilon, const torch::Tensor& y,
             const torch::Tensor& inverse_rms) {
  const int64_t n = x.size(-1);
  ForRows(inverse_rms.numel(), n, [&](int64_t begin, int64_t end) {
    Loops<X, Y>().forward(Values<X>(x) + begin * n, Values<float>(weight),
                          static_cast<float>(epsilon), end - begin, n,
                          Values<Y>(y) + begin * n,
                          Values<float>(inverse_rms) + begin);
  });
}

// dweights: [blocks, features], initially zero.
template <typename X, typename Y>
void Backward(const torch::Tensor& dy, const torch::Tensor& x,
              const torch::Tensor& weight, const torch::Tensor& inverse_rms,
              const torch::Tensor& dx, const torch::Tensor& dweights) {
  const int64_t n = x.size(-1);
  const auto run_block = [&](int64_t block) {
    const int64_t begin = block * kBlockRows;
    const int64_t rows = std::min(kBlockRows, inverse_rms.numel() - begin);
    Loops<X, Y>().backward(
        Values<Y>(dy) + begin * n, Values<X>(x) + begin * n,
        Values<float>(weight), Values<float>(inverse_rms) + begin, rows, n,
        Values<X>(dx) + begin * n, Values<float>(dweights) + block * n);
  };
  ForRows(dweights.size(0), n * kBlockRows, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) run_block(block);
  });
}

struct Passes {
  decltype(&Forward<float, float>) forward;
  decltype(&Backward<float, float>) backward;
};

template <typename X, typename Y>
constexpr Passes kPasses = {Forward<X, Y>, Backward<X, Y>};

const Passes& PassesOf(at::ScalarType x, at::ScalarType y) {
  if (y == at::kFloat) return kPasses<float, float>;
  return x == at::kFloat ? kPasses<float, Bf16Bits>
                         : kPasses<Bf16Bits, Bf16Bits>;
}

torch::Tensor AsFloats(const torch::Tensor& weight) {
  return weight.to(at::kFloat).contiguous();
}

class RmsNormFunction : public OnceDifferentiable<RmsNormFunction> {
 public:
  static constexpr char kName[] = "RmsNorm";

  static torch::Tensor forward(AutogradContext* ctx, const torch::Tensor& any_x,
                               const torch::Tensor& weight, double epsilon) {
    const torch::Tensor x = any_x.contiguous();
    const torch::Tensor y =
        at::empty(x.sizes(), x.options().dtype(AutocastType(x)));
    const torch::Tensor inverse_rms =
        at::empty({x.numel() / x.size(-1)}, x.options().dtype(at::kFloat));
    PassesOf(x.scalar_type(), y.scalar_type())
        .forward(x, AsFloats(weight), epsilon, y, inverse_rms);
    ctx->save_for_backward({x, weight, inverse_rms});
    return y;
  }

  static variable_list Gradients(AutogradContext* ctx,
                                 const variable_list& gradients) {
    const variable_list saved = ctx->get_saved_variables();
    const torch::Tensor &x = saved[0], &weight = saved[1],
                        &inverse_rms = saved[2];
    const torch::Tensor dy = gradients[0].contiguous();
    const torch::Tensor dx = at::empty_like(x);
    const torch::Tensor dweights = at::zeros(
        {(inverse_rms.numel() + kBlockRows - 1) / kBlockRows, x.size(-1)},
        inverse_rms.options());
    PassesOf(x.scalar_type(), dy.scalar_type())
        .backward(dy, x, AsFloats(weight), inverse_rms, dx, dweights);
    return {dx, dweights.sum(0).to(weight.scalar_type()), {}};
  }
};

}  // namespace

torch::Tensor RmsNorm(const torch::Tensor& x, const torch::Tensor& weight,
                      double epsilon) {
  const at::ScalarType type = AutocastType(x);
  const bool has_loops =
      HasLoops(x) && (type == x.scalar_type() || type == at::kBFloat16);
  if (!has_loops) {
    return at::rms_norm(x, weight.sizes(), weight.to(x.scalar_type()), epsilon);
  }
  TORCH_CHECK(weight.dim() == 1 && weight.size(0) == x.size(-1), "RmsNorm of ",
              x.sizes(), " has a weight of ", weight.sizes(),
              "; it must have one value per feature");
  return RmsNormFunction::apply(x, weight, epsilon);
}

}  // namespace rankwise
