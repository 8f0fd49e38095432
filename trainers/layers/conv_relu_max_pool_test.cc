#include "trainers/layers/conv_relu_max_pool.h"

#include <ATen/autocast_mode.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/relu.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <vector>

namespace rankwise {
namespace {

using torch::autograd::variable_list;

// Of one layer: its output, and the gradients of weight and bias.
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

// The largest difference between ConvReluMaxPool's results and those of ATen's
// functions, in units of each result's largest value.
double Error(const torch::Tensor& x, int64_t out) {
  const variable_list parameters = {
      at::randn({out, x.size(1), 3, 3}).mul(0.2).requires_grad_(),
      at::randn({out}).requires_grad_()};
  const torch::Tensor dy =
      at::randn({x.size(0), out, x.size(2) / 2, x.size(3) / 2});
  const variable_list expected = Results(
      [](const auto& in, const auto& weight, const auto& bias) {
        return at::max_pool2d(at::relu(at::conv2d(in, weight, bias, 1, 1)), 2);
      },
      x, parameters, dy);
  const variable_list actual = Results(ConvReluMaxPool, x, parameters, dy);
  double error = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(actual[i].scalar_type(), expected[i].scalar_type());
    EXPECT_EQ(actual[i].sizes(), expected[i].sizes());
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
  at::autocast::set_autocast_enabled(at::kCPU, true);
  at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  const double error = Error(Images({16, 3, 32, 32}), 32);
  at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(at::kCPU, false);
  EXPECT_LT(error, 0.03);  // ATen rounds its sums to 8 bits
  EXPECT_GT(error, 0);
}

TEST(ConvReluMaxPoolTest, TheSameThreadsGiveTheSameBits) {
  const torch::Tensor x = Images({7, 3, 32, 32});
  const variable_list parameters = {at::randn({32, 3, 3, 3}).requires_grad_(),
                                    at::randn({32}).requires_grad_()};
  const torch::Tensor dy = at::randn({7, 32, 16, 16});
  const variable_list once = Results(ConvReluMaxPool, x, parameters, dy);
  for (int i = 0; i < 3; ++i) {
    const variable_list again = Results(ConvReluMaxPool, x, parameters, dy);
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
