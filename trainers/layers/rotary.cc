#include "trainers/layers/rotary.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "parallel/autograd/once_differentiable.h"
#include "trainers/layers/rms_norm.h"
#include "trainers/layers/values.h"
#include "trainers/layers/vector_loops.h"

namespace rankwise {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

torch::Tensor Scaled(const torch::Tensor& frequencies,
                     const RopeScaling& scaling) {
  const double low = scaling.low_frequency_factor,
               high = scaling.high_frequency_factor;
  const auto original = static_cast<double>(scaling.original_tokens);
  const torch::Tensor wavelengths = 2 * M_PI / frequencies;
  const torch::Tensor share = (original / wavelengths - low) / (high - low);
  const torch::Tensor divided = frequencies / scaling.factor;
  const torch::Tensor between =
      (1 - share) * frequencies / scaling.factor + share * frequencies;
  return at::where(
      wavelengths > original / low, divided,
      at::where(wavelengths < original / high, frequencies, between));
}

// Rotates the first `heads` heads of each token of qkv, which is contiguous,
// and copies the other heads.
template <typename T>
torch::Tensor RunLoops(const torch::Tensor& qkv, int64_t heads,
                       const torch::Tensor& cos, const torch::Tensor& sin,
                       float sign) {
  const int64_t tokens = cos.size(0), pairs = cos.size(1), width = qkv.size(2);
  const int64_t rotated = heads * 2 * pairs;
  torch::Tensor out = at::empty_like(qkv);
  ForRows(qkv.size(0) * tokens, width, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const T* const from = Values<T>(qkv) + row * width;
      T* const to = Values<T>(out) + row * width;
      const int64_t angles = row % tokens * pairs;
      BestLoops<T>().rotate(from, Values<float>(cos) + angles,
                            Values<float>(sin) + angles, sign, heads, pairs,
                            to);
      std::memcpy(to + rotated, from + rotated,
                  static_cast<size_t>(width - rotated) * sizeof(T));
    }
  });
  return out;
}

// Does the same with ATen's operations, on any device and for any type.
torch::Tensor RunAten(const torch::Tensor& qkv, int64_t heads,
                      const torch::Tensor& cos, const torch::Tensor& sin,
                      float sign) {
  const int64_t pairs = cos.size(1), rotated = heads * 2 * pairs;
  const torch::Tensor halves =
      qkv.narrow(-1, 0, rotated).unflatten(-1, {heads, 2, pairs});
  const torch::Tensor first = halves.select(-2, 0),
                      second = halves.select(-2, 1);
  const torch::Tensor cosine = cos.unsqueeze(1), sine = sign * sin.unsqueeze(1);
  return at::cat(
      {at::stack(
           {first * cosine - second * sine, second * cosine + first * sine}, -2)
           .flatten(2)
           .to(qkv.scalar_type()),
       qkv.narrow(-1, rotated, qkv.size(-1) - rotated)},
      -1);
}

torch::Tensor Rotate(const torch::Tensor& qkv, int64_t heads,
                     const torch::Tensor& cos, const torch::Tensor& sin,
                     float sign) {
  if (!HasLoops(qkv)) return RunAten(qkv, heads, cos, sin, sign);
  const auto run =
      qkv.scalar_type() == at::kFloat ? &RunLoops<float> : &RunLoops<Bf16Bits>;
  return run(qkv.contiguous(), heads, cos, sin, sign);
}

class RotaryFunction : public OnceDifferentiable<RotaryFunction> {
 public:
  static constexpr char kName[] = "Rotary";

  static torch::Tensor forward(AutogradContext* ctx, const torch::Tensor& qkv,
                               int64_t heads, const torch::Tensor& cos,
                               const torch::Tensor& sin) {
    ctx->save_for_backward({cos, sin});
    ctx->saved_data["heads"] = heads;
    return Rotate(qkv, heads, cos, sin, /*sign=*/1);
  }

  static variable_list Gradients(AutogradContext* ctx,
                                 const variable_list& gradients) {
    const variable_list saved = ctx->get_saved_variables();
    return {Rotate(gradients[0], ctx->saved_data["heads"].toInt(), saved[0],
                   saved[1], /*sign=*/-1),
            {},
            {},
            {}};
  }
};

}  // namespace

RotaryAngles RotaryTable(const torch::Tensor& positions, int64_t features,
                         double theta,
                         const std::optional<RopeScaling>& scaling) {
  const at::TensorOptions fp32 = positions.options().dtype(at::kFloat);
  torch::Tensor frequencies =
      1 / at::pow(theta, at::arange(0, features, 2, fp32) / features);
  if (scaling.has_value()) frequencies = Scaled(frequencies, *scaling);
  const torch::Tensor angles = at::outer(positions.to(at::kFloat), frequencies);
  return {angles.cos(), angles.sin()};
}

torch::Tensor Rotary(const torch::Tensor& qkv, int64_t heads, int64_t kv_heads,
                     const torch::Tensor& cos, const torch::Tensor& sin) {
  TORCH_CHECK(cos.dim() == 2 && cos.scalar_type() == at::kFloat &&
                  cos.sizes() == sin.sizes() && qkv.dim() == 3 &&
                  qkv.size(1) == cos.size(0) &&
                  qkv.size(2) == (heads + 2 * kv_heads) * 2 * cos.size(1),
              "Rotary: cos ", cos.sizes(), " and sin ", sin.sizes(),
              " must be fp32 [tokens, features / 2] of the heads of qkv ",
              qkv.sizes(), " with ", heads, " query heads and ", kv_heads,
              " key-value heads");
  return RotaryFunction::apply(qkv, heads + kv_heads, cos.contiguous(),
                               sin.contiguous());
}

torch::Tensor QkNorm(const torch::Tensor& qkv, int64_t heads, int64_t kv_heads,
                     const torch::Tensor& q_norm, const torch::Tensor& k_norm,
                     double epsilon) {
  const int64_t features = q_norm.size(0);
  const std::vector<torch::Tensor> parts =
      qkv.unflatten(-1, {-1, features})
          .split_with_sizes({heads, kv_heads, kv_heads}, -2);
  return at::cat({RmsNorm(parts[0], q_norm, epsilon),
                  RmsNorm(parts[1], k_norm, epsilon), parts[2]},
                 -2)
      .flatten(-2);
}

}  // namespace rankwise
