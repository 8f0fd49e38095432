#include "trainers/layers/conv_relu_max_pool.h"

#include <ATen/autocast_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/relu.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "trainers/layers/instruction_set.h"

namespace rankwise {
namespace {

using torch::autograd::variable_list;

// Makes layers compute in bf16 during its lifetime.
class Bf16Autocast {
 public:
  Bf16Autocast() {
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  }
  ~Bf16Autocast() {
    at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCPU, false);
  }
};

// Returns the values of `bf16_pairs` that this CPU supports.
std::vector<bool> PairsOrNot() {
  return HasBf16Pairs() ? std::vector<bool>{false, true}
                        : std::vector<bool>{false};
}

torch::Tensor AtensLayer(const torch::Tensor& x, const torch::Tensor& weight,
                         const torch::Tensor& bias) {
  return at::max_pool2d(at::relu(at::conv2d(x, weight, bias, 1, 1)), 2);
}

// Returns a layer's output, and the gradients of weight and bias.
template <typename Layer>
variable_list Results(const Layer& layer, const torch::Tensor& x,
                      const variable_list& parameters,
                      const torch::Tensor& output_gradient) {
  const torch::Tensor y = layer(x, parameters[0], parameters[1]);
  variable_list results = torch::autograd::grad(
      {y}, parameters, {output_gradient.to(y.scalar_type())});
  results.push_back(y);
  return results;
}

// Returns the results of ConvReluMaxPool.
variable_list OurResults(const torch::Tensor& x,
                         const variable_list& parameters,
                         const torch::Tensor& output_gradient,
                         bool bf16_pairs = HasBf16Pairs()) {
  return Results(
      [&](const auto& in, const auto& weight, const auto& bias) {
        return ConvReluMaxPool(in, weight, bias, bf16_pairs);
      },
      x, parameters, output_gradient);
}

// Returns 0 where rounding alone decides which value of a window is the
// largest, or whether it is above 0, which moves a whole gradient; else 1.
torch::Tensor IsDecided(const torch::Tensor& x,
                        const variable_list& parameters) {
  const torch::NoGradGuard no_grad;
  const torch::Tensor y =
      at::relu(at::conv2d(x, parameters[0], parameters[1], 1, 1));
  const torch::Tensor windows = y.unfold(2, 2, 2).unfold(3, 2, 2).flatten(4);
  const torch::Tensor two_largest = std::get<0>(windows.topk(2));
  return two_largest.select(4, 0) - two_largest.select(4, 1) > 1e-5;
}

// Returns the largest difference between ConvReluMaxPool's results and those of
// ATen's functions, in units of each result's largest value.
double Error(const torch::Tensor& x, int64_t out,
             bool bf16_pairs = HasBf16Pairs()) {
  const variable_list parameters = {
      at::randn({out, x.size(1), 3, 3}).mul(0.2).requires_grad_(),
      at::randn({out}).requires_grad_()};
  const torch::Tensor dy =
      at::randn({x.size(0), out, x.size(2) / 2, x.size(3) / 2}) *
      IsDecided(x, parameters);
  const variable_list expected = Results(AtensLayer, x, parameters, dy);
  const variable_list actual = OurResults(x, parameters, dy, bf16_pairs);
  double error = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(actual[i].scalar_type(), expected[i].scalar_type());
    EXPECT_EQ(actual[i].sizes(), expected[i].sizes());
    EXPECT_TRUE(actual[i].isfinite().all().item<bool>());
    const torch::Tensor difference =
        (actual[i].to(at::kFloat) - expected[i].to(at::kFloat)).abs().max();
    error =
        std::max(error, (difference / expected[i].abs().max()).item<double>());
  }
  return error;
}

torch::Tensor Images(std::vector<int64_t> sizes) {
  return at::randn(sizes).contiguous(at::MemoryFormat::ChannelsLast);
}

// Random integers from -largest to largest.
torch::Tensor Integers(int64_t largest, std::vector<int64_t> sizes) {
  return at::randint(-largest, largest + 1, sizes, at::kFloat);
}

TEST(ConvReluMaxPoolTest, GivesAtensResultsButForRounding) {
  EXPECT_LT(Error(Images({64, 3, 32, 32}), 32), 2e-5);
  EXPECT_LT(Error(Images({1, 3, 4, 8}), 32), 2e-5);
  EXPECT_LT(Error(at::randn({5, 3, 6, 16}), 32), 2e-5);  // channels first
  // Left to ATen: other channels, an odd row.
  EXPECT_LT(Error(Images({3, 8, 8, 8}), 32), 2e-5);
  EXPECT_LT(Error(Images({3, 3, 8, 8}), 40), 2e-5);
  EXPECT_LT(Error(Images({3, 3, 7, 8}), 32), 2e-5);
}

TEST(ConvReluMaxPoolTest, UnderAutocastComputesInBf16) {
  const Bf16Autocast autocast;
  for (const bool pairs : PairsOrNot()) {
    const double error = Error(Images({16, 3, 32, 32}), 32, pairs);
    EXPECT_LT(error, 0.03) << pairs;  // ATen rounds its sums to 8 bits
    EXPECT_GT(error, 0) << pairs;
  }
}

// Integers whose sums are exact, and outputs that bf16 can represent.
TEST(ConvReluMaxPoolTest, InBf16GivesExactSumsWhereNothingIsRounded) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const variable_list parameters = {Integers(1, {32, 3, 3, 3}).requires_grad_(),
                                    Integers(3, {32}).requires_grad_()};
  for (const int64_t examples : {1, 5, 64}) {
    const torch::Tensor x = Integers(3, {examples, 3, 6, 16});
    const torch::Tensor dy = Integers(3, {examples, 32, 3, 8});
    for (const float pixel : {0.0f, kInfinity, std::nanf("")}) {
      x[0][2][3][4] = pixel;
      x[0][0][5][15] = -pixel;
      variable_list expected = Results(AtensLayer, x, parameters, dy);
      const Bf16Autocast autocast;
      // Among several NaNs ATen's pooling chooses another.
      if (!std::isfinite(pixel))
        expected[0] = OurResults(x, parameters, dy, /*bf16_pairs=*/false)[0];
      for (const bool pairs : PairsOrNot()) {
        const variable_list actual = OurResults(x, parameters, dy, pairs);
        for (size_t i = 0; i < expected.size(); ++i) {
          EXPECT_TRUE(at::allclose(actual[i].to(at::kFloat), expected[i],
                                   /*rtol=*/0, /*atol=*/0, /*equal_nan=*/true))
              << i << " of " << examples << ", " << pixel << ", " << pairs;
        }
      }
    }
  }
}

TEST(ConvReluMaxPoolTest, TheSameThreadsGiveTheSameBits) {
  const torch::Tensor x = Images({7, 3, 32, 32});
  const variable_list parameters = {at::randn({32, 3, 3, 3}).requires_grad_(),
                                    at::randn({32}).requires_grad_()};
  const torch::Tensor dy = at::randn({7, 32, 16, 16});
  const variable_list once = OurResults(x, parameters, dy);
  for (int i = 0; i < 3; ++i) {
    const variable_list again = OurResults(x, parameters, dy);
    for (size_t j = 0; j < once.size(); ++j)
      EXPECT_TRUE(again[j].equal(once[j])) << j;
  }
}

TEST(ConvReluMaxPoolTest, AnInputThatNeedsAGradientGetsIt) {
  const torch::Tensor x = Images({2, 3, 8, 8}).requires_grad_();
  ConvReluMaxPool(x, at::randn({32, 3, 3, 3}), at::randn({32}))
      .sum()
      .backward();
  EXPECT_TRUE(x.grad().defined());
}

}  // namespace
}  // namespace rankwise
