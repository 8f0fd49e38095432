// Compares RmsNorm, SwiGlu, Rotary and QkNorm with their definitions in double
// precision: outputs and all gradients.

#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <vector>

#include "trainers/layers/rms_norm.h"
#include "trainers/layers/rotary.h"
#include "trainers/layers/swiglu.h"

namespace rankwise {
namespace {

using testing::HasSubstr;
using torch::Tensor;
using Tensors = std::vector<Tensor>;
using Layer = std::function<Tensor(const Tensors& inputs)>;

constexpr at::ScalarType kTypes[] = {at::kFloat, at::kBFloat16, at::kDouble};
constexpr double kEpsilon = 1e-5;

// Returns the output and the gradients of all inputs.
Tensors Train(const Layer& layer, const Tensors& inputs,
              const Tensor& gradient) {
  Tensors leaves;
  for (const Tensor& input : inputs)
    leaves.push_back(input.detach().clone().requires_grad_());
  Tensors results = {layer(leaves)};
  results[0].backward(gradient.to(results[0].scalar_type()));
  for (const Tensor& leaf : leaves) results.push_back(leaf.grad());
  return results;
}

// Expects values within 2e-6 of the largest one and, in bf16, half a unit in
// the last place: the layers round once.
void ExpectRoundedOnce(const Tensor& values, const Tensor& truth) {
  ASSERT_EQ(values.sizes(), truth.sizes());
  const double rounding = values.scalar_type() == at::kBFloat16 ? 0x1p-8 : 0;
  const Tensor excess = (values.to(at::kDouble) - truth).abs() -
                        rounding * truth.abs() - 2e-6 * truth.abs().max();
  EXPECT_LE(excess.max().item<double>(), 0) << values.scalar_type();
}

void ExpectSame(const Layer& ours, const Layer& definition,
                const Tensors& inputs) {
  Tensors wide;
  for (const Tensor& input : inputs) wide.push_back(input.to(at::kDouble));
  const Tensor gradient =
      at::randn(definition(wide).sizes()).to(at::kBFloat16).to(at::kDouble);
  const Tensors truth = Train(definition, wide, gradient);
  const Tensors results = Train(ours, inputs, gradient);
  for (size_t i = 0; i < results.size(); ++i) {
    SCOPED_TRACE(i);
    ExpectRoundedOnce(results[i], truth[i]);
  }
}

// Expects `run` to throw an error that contains `message`.
void ExpectError(const std::function<void()>& run, const char* message) {
  try {
    run();
    ADD_FAILURE() << "no error: " << message;
  } catch (const c10::Error& error) {
    EXPECT_THAT(error.msg(), HasSubstr(message));
  }
}

Tensor DefinedRmsNorm(const Tensor& x, const Tensor& weight) {
  return x * (x.square().mean(-1, /*keepdim=*/true) + kEpsilon).rsqrt() *
         weight;
}

const Layer kRmsNorm = [](const Tensors& in) {
  return RmsNorm(in[0], in[1], kEpsilon);
};
const Layer kDefinedRmsNorm = [](const Tensors& in) {
  return DefinedRmsNorm(in[0], in[1]);
};

Tensor SomeWeight(int64_t features) { return 1 + 0.1 * at::randn({features}); }

TEST(RmsNormTest, EqualsItsDefinition) {
  at::manual_seed(1);
  for (const int64_t features : {3, 7, 64, 384}) {
    const Tensor x = 3 * at::randn({2, 67, features});
    const Tensor weight = SomeWeight(features);
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16})
      ExpectSame(kRmsNorm, kDefinedRmsNorm, {x.to(type), weight.to(type)});
    ExpectSame(kRmsNorm, kDefinedRmsNorm, {x.to(at::kBFloat16), weight});
    ExpectSame(kRmsNorm, kDefinedRmsNorm,
               {x.to(at::kDouble), weight.to(at::kDouble)});
    ExpectSame(kRmsNorm, kDefinedRmsNorm, {x.transpose(0, 1), weight});
    EXPECT_EQ(RmsNorm(x.to(at::kHalf), weight, kEpsilon).scalar_type(),
              at::kHalf);
  }
}

TEST(RmsNormTest, UnderAutocastRoundsOnlyTheOutput) {
  const Layer under_autocast = [](const Tensors& in) {
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
    at::autocast::set_autocast_enabled(at::kCPU, true);
    const Tensor y = kRmsNorm(in);
    at::autocast::set_autocast_enabled(at::kCPU, false);
    return y;
  };
  const Tensors inputs = {at::randn({2, 67, 96}), SomeWeight(96)};
  ExpectSame(under_autocast, kDefinedRmsNorm, inputs);
  const Tensors results = Train(under_autocast, inputs, inputs[0]);
  EXPECT_EQ(results[0].scalar_type(), at::kBFloat16);
  EXPECT_EQ(results[1].scalar_type(), at::kFloat);
  EXPECT_EQ(results[2].scalar_type(), at::kFloat);
}

TEST(RmsNormTest, HasTheSameBitsOnAnyNumberOfThreads) {
  const int threads = at::get_num_threads();
  const Tensors inputs = {at::randn({1000, 384}), SomeWeight(384)};
  at::set_num_threads(1);
  const Tensors one = Train(kRmsNorm, inputs, inputs[0]);
  at::set_num_threads(4);
  const Tensors four = Train(kRmsNorm, inputs, inputs[0]);
  at::set_num_threads(threads);
  for (size_t i = 0; i < one.size(); ++i)
    EXPECT_TRUE(one[i].equal(four[i])) << i;
}

TEST(RmsNormTest, NamesAWeightOfAnotherSize) {
  ExpectError(
      [] {
        RmsNorm(at::ones({2, 4}), at::ones({3}), kEpsilon);
      },
      "RmsNorm of [2, 4] has a weight of [3]");
}

TEST(SwiGluTest, EqualsItsDefinition) {
  at::manual_seed(2);
  const Layer definition = [](const Tensors& in) {
    const Tensors halves = in[0].chunk(2, -1);
    return halves[0] * halves[0].sigmoid() * halves[1];
  };
  const Layer ours = [](const Tensors& in) { return SwiGlu(in[0]); };
  for (const int64_t features : {1, 33, 1024}) {
    const Tensor x = 4 * at::randn({3, 35, 2 * features});
    for (const at::ScalarType type : kTypes)
      ExpectSame(ours, definition, {x.to(type)});
    ExpectSame(ours, definition, {x.transpose(0, 1)});
  }
}

TEST(SwiGluTest, LargeGatesAreOpenOrClosed) {
  const Tensor y = SwiGlu(at::tensor({200.0f, -200.0f, 3.0f, 3.0f}));
  EXPECT_EQ(y[0].item<float>(), 600);
  EXPECT_NEAR(y[1].item<float>(), 0, 1e-30);
}

TEST(SwiGluTest, NamesAnOddNumberOfFeatures) {
  ExpectError([] { SwiGlu(at::ones({2, 5})); }, "SwiGlu of [2, 5]");
}

struct Heads {
  int64_t tokens, heads, kv_heads, features;
};

constexpr Heads kHeads[] = {
    {17, 6, 2, 64}, {5, 4, 1, 16}, {1, 3, 3, 10}, {33, 1, 1, 2}};

Tensor SomeQkv(const Heads& shape) {
  return at::randn(
      {3, shape.tokens, (shape.heads + 2 * shape.kv_heads) * shape.features});
}

// Returns queries, keys and values, [B, tokens, their heads, features].
Tensors Parts(const Tensor& qkv, const Heads& shape) {
  return qkv.unflatten(-1, {-1, shape.features})
      .split_with_sizes({shape.heads, shape.kv_heads, shape.kv_heads}, 2);
}

// x cos + rotate_half(x) sin, as in transformers.
Tensor DefinedRotary(const Tensor& qkv, const Heads& shape,
                     const RotaryAngles& angles) {
  const Tensor cos = at::cat({angles.cos, angles.cos}, -1).unsqueeze(1),
               sin = at::cat({angles.sin, angles.sin}, -1).unsqueeze(1);
  const auto rotated = [&](const Tensor& x) {
    const Tensors halves = x.chunk(2, -1);
    return x * cos + at::cat({-halves[1], halves[0]}, -1) * sin;
  };
  const Tensors parts = Parts(qkv, shape);
  return at::cat({rotated(parts[0]), rotated(parts[1]), parts[2]}, 2)
      .flatten(2);
}

RotaryAngles SomeAngles(const Heads& shape) {
  return RotaryTable(at::arange(shape.tokens) + 100, shape.features,
                     /*theta=*/1e4);
}

TEST(RotaryTest, EqualsItsDefinition) {
  at::manual_seed(3);
  for (const Heads& shape : kHeads) {
    SCOPED_TRACE(shape.tokens);
    const RotaryAngles angles = SomeAngles(shape);
    const Layer ours = [&](const Tensors& in) {
      return Rotary(in[0], shape.heads, shape.kv_heads, angles.cos, angles.sin);
    };
    const Layer definition = [&](const Tensors& in) {
      return DefinedRotary(in[0], shape, angles);
    };
    for (const at::ScalarType type : kTypes)
      ExpectSame(ours, definition, {SomeQkv(shape).to(type)});
  }
}

TEST(RotaryTest, NamesAnglesOfAnotherShape) {
  const RotaryAngles angles = SomeAngles(kHeads[0]);
  ExpectError(
      [&] {
        Rotary(at::ones({1, 16, 640}), 6, 2, angles.cos, angles.sin);
      },
      "cos [17, 32] and sin [17, 32] must be fp32 [tokens, features / 2]");
}

TEST(QkNormTest, NormalisesEachHeadOfQueriesAndKeys) {
  at::manual_seed(4);
  for (const Heads& shape : kHeads) {
    SCOPED_TRACE(shape.tokens);
    const Layer ours = [&](const Tensors& in) {
      return QkNorm(in[0], shape.heads, shape.kv_heads, in[1], in[2], kEpsilon);
    };
    const Layer definition = [&](const Tensors& in) {
      const Tensors parts = Parts(in[0], shape);
      return at::cat({DefinedRmsNorm(parts[0], in[1]),
                      DefinedRmsNorm(parts[1], in[2]), parts[2]},
                     2)
          .flatten(2);
    };
    for (const at::ScalarType type : kTypes) {
      ExpectSame(ours, definition,
                 {SomeQkv(shape).to(type), SomeWeight(shape.features).to(type),
                  SomeWeight(shape.features).to(type)});
    }
  }
}

TEST(RotaryTableTest, AnglesArePositionsTimesFrequencies) {
  const std::vector<int64_t> positions = {0, 1, 4095, 100000};
  const RotaryAngles angles =
      RotaryTable(at::tensor(positions), /*features=*/64, /*theta=*/1e4);
  ASSERT_EQ(angles.cos.sizes(), (std::vector<int64_t>{4, 32}));
  for (int64_t token = 0; token < 4; ++token) {
    for (int64_t i = 0; i < 32; ++i) {
      const double angle =
          static_cast<double>(positions[static_cast<size_t>(token)]) /
          std::pow(1e4, static_cast<double>(2 * i) / 64);
      // fp32 angles are within a few units in their last place.
      const double bound = 3e-7 + angle * 0x1p-22;
      EXPECT_NEAR(angles.cos[token][i].item<float>(), std::cos(angle), bound);
      EXPECT_NEAR(angles.sin[token][i].item<float>(), std::sin(angle), bound);
    }
  }
}

// Returns the frequency of each pair: its angle at position 1.
Tensor Frequencies(const std::optional<RopeScaling>& scaling) {
  const RotaryAngles angles = RotaryTable(at::ones({1}, at::kLong),
                                          /*features=*/128, 5e5, scaling);
  return at::atan2(angles.sin[0].to(at::kDouble),
                   angles.cos[0].to(at::kDouble));
}

TEST(RotaryTableTest, ScalesLowFrequenciesAsLlama3) {
  const Tensor plain = Frequencies(std::nullopt);
  const Tensor scaled = Frequencies(RopeScaling{.factor = 8,
                                                .low_frequency_factor = 1,
                                                .high_frequency_factor = 4,
                                                .original_tokens = 8192});
  int unchanged = 0, divided = 0;
  for (int64_t i = 0; i < 64; ++i) {
    const double before = plain[i].item<double>();
    const double turns = 8192 * before / (2 * M_PI);  // in the old context
    const double share = std::clamp((turns - 1) / 3, 0.0, 1.0);
    unchanged += share == 1;
    divided += share == 0;
    EXPECT_NEAR(scaled[i].item<double>() / before, share + (1 - share) / 8,
                3e-6)
        << i;
  }
  // 500000^(2 i / 128) exceeds 8192 / (2 pi 4) at i = 28.2, and 8192 / (2 pi)
  // at i = 35.0.
  EXPECT_EQ(unchanged, 29);
  EXPECT_EQ(divided, 29);
}

}  // namespace
}  // namespace rankwise
