// Compares with ATen's functions, in double precision and in the type.

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "trainers/layers/attention.h"
#include "trainers/layers/gelu.h"

namespace rankwise {
namespace {

using Layer = std::function<torch::Tensor(const torch::Tensor& x)>;

struct Passes {
  torch::Tensor output, gradient;  // in double precision
};

Passes Train(const Layer& layer, const torch::Tensor& x,
             const torch::Tensor& output_gradient, at::ScalarType type) {
  const torch::Tensor input = x.to(type, false, /*copy=*/true).requires_grad_();
  const torch::Tensor output = layer(input);
  EXPECT_EQ(output.scalar_type(), type);
  output.backward(output_gradient.to(type));
  return {output.detach().to(at::kDouble), input.grad().to(at::kDouble)};
}

double Distance(const torch::Tensor& a, const torch::Tensor& b) {
  return ((a - b).norm() / b.norm()).item<double>();
}

// Expects errors no larger than ATen's in the same type, except for `rounding`.
void ExpectAsExactAsAten(const Layer& ours, const Layer& aten,
                         const torch::Tensor& x, const torch::Tensor& gradient,
                         at::ScalarType type, double rounding) {
  const torch::Tensor rounded = x.to(type),
                      rounded_gradient = gradient.to(type);
  const Passes truth = Train(aten, rounded, rounded_gradient, at::kDouble);
  const Passes theirs = Train(aten, rounded, rounded_gradient, type);
  const Passes result = Train(ours, rounded, rounded_gradient, type);
  EXPECT_LT(Distance(result.output, truth.output),
            1.2 * Distance(theirs.output, truth.output) + rounding);
  EXPECT_LT(Distance(result.gradient, truth.gradient),
            1.2 * Distance(theirs.gradient, truth.gradient) + rounding);
}

struct Case {
  int64_t examples, tokens, heads, kv_heads, features;
  bool causal;

  int64_t qkv_width() const { return (heads + 2 * kv_heads) * features; }
};

torch::Tensor AtensAttention(const torch::Tensor& qkv, const Case& shape) {
  const std::vector<torch::Tensor> parts =
      qkv.unflatten(-1, {-1, shape.features})
          .transpose(1, 2)
          .split_with_sizes({shape.heads, shape.kv_heads, shape.kv_heads}, 1);
  const int64_t group = shape.heads / shape.kv_heads;
  return at::scaled_dot_product_attention(
             parts[0], parts[1].repeat_interleave(group, 1),
             parts[2].repeat_interleave(group, 1),
             /*attn_mask=*/{}, /*dropout_p=*/0, shape.causal)
      .transpose(1, 2)
      .flatten(2);
}

torch::Tensor SomeQkv(const Case& shape) {
  return 1.5 * at::randn({shape.examples, shape.tokens, shape.qkv_width()});
}

TEST(SelfAttentionTest, IsAsExactAsAtens) {
  at::manual_seed(1);
  const Case cases[] = {{2, 128, 4, 4, 32, true}, {2, 128, 4, 4, 32, false},
                        {3, 65, 2, 2, 32, false}, {1, 31, 3, 3, 16, true},
                        {2, 1, 1, 1, 8, true},    {1, 33, 2, 2, 6, true},
                        {1, 300, 1, 1, 64, true}, {1, 300, 1, 1, 64, false},
                        {1, 97, 1, 1, 20, true},  {2, 65, 6, 2, 16, true},
                        {2, 65, 6, 1, 16, false}, {3, 300, 4, 2, 32, true}};
  for (const Case& shape : cases) {
    SCOPED_TRACE(shape.tokens);
    const torch::Tensor qkv = SomeQkv(shape);
    const torch::Tensor gradient =
        at::randn({shape.examples, shape.tokens, shape.heads * shape.features});
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      // A CPU without such products has nothing to test.
      if (!HasSelfAttention(qkv.to(type), shape.heads, shape.kv_heads))
        continue;
      ExpectAsExactAsAten(
          [&](const torch::Tensor& x) {
            return SelfAttention(x, shape.heads, shape.kv_heads, shape.causal);
          },
          [&](const torch::Tensor& x) { return AtensAttention(x, shape); }, qkv,
          gradient, type, type == at::kFloat ? 1e-6 : 1e-3);
    }
  }
}

TEST(SelfAttentionTest, HasTheSameBitsOnAnyNumberOfThreads) {
  const int threads = at::get_num_threads();
  for (const int64_t tokens : {40, 65}) {
    const Case shape = {2, tokens, 6, 3, 16, true};
    const torch::Tensor qkv = SomeQkv(shape);
    const torch::Tensor gradient = at::randn({2, tokens, 96});
    const Layer attend = [&](const torch::Tensor& x) {
      return SelfAttention(x, shape.heads, shape.kv_heads, shape.causal);
    };
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      if (!HasSelfAttention(qkv.to(type), shape.heads, shape.kv_heads))
        GTEST_SKIP() << "no such products";
      at::set_num_threads(1);
      const Passes one = Train(attend, qkv, gradient, type);
      at::set_num_threads(4);
      const Passes four = Train(attend, qkv, gradient, type);
      at::set_num_threads(threads);
      EXPECT_TRUE(one.output.equal(four.output)) << tokens << type;
      EXPECT_TRUE(one.gradient.equal(four.gradient)) << tokens << type;
    }
  }
}

TEST(SelfAttentionTest, LeavesToAtenWhatItCannotDo) {
  EXPECT_FALSE(HasSelfAttention(at::randn({2, 4, 24}).to(at::kDouble), 2, 2));
  EXPECT_FALSE(HasSelfAttention(at::randn({2, 4, 24}).to(at::kHalf), 2, 2));
  EXPECT_FALSE(HasSelfAttention(at::randn({4, 2, 24}).transpose(0, 1), 2, 2));
  EXPECT_FALSE(HasSelfAttention(at::randn({2, 4, 18}), 2, 2));  // 3 features
  EXPECT_FALSE(HasSelfAttention(at::randn({2, 4, 28}), 3, 2));
  at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  at::autocast::set_autocast_enabled(at::kCPU, true);
  EXPECT_FALSE(HasSelfAttention(at::randn({2, 4, 24}), 2, 2));
  at::autocast::set_autocast_enabled(at::kCPU, false);
}

TEST(TanhGeluTest, IsAsExactAsAtens) {
  at::manual_seed(2);
  const torch::Tensor x = 3 * at::randn({70, 1001});
  const torch::Tensor gradient = at::randn({70, 1001});
  const Layer aten = [](const torch::Tensor& values) {
    return at::gelu(values, "tanh");
  };
  ExpectAsExactAsAten(TanhGelu, aten, x, gradient, at::kFloat, 1e-6);
  ExpectAsExactAsAten(TanhGelu, aten, x, gradient, at::kBFloat16, 1e-4);
  EXPECT_TRUE(
      TanhGelu(x.to(at::kDouble)).equal(at::gelu(x.to(at::kDouble), "tanh")));
  EXPECT_TRUE(TanhGelu(x.t()).equal(at::gelu(x.t(), "tanh")));
}

}  // namespace
}  // namespace rankwise
