#include "trainers/layers/relu_max_pool.h"

#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/relu.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

namespace rankwise {
namespace {

struct Results {
  torch::Tensor output, gradient;
};

// Runs `layer` at x, and backward from `output_gradient`.
template <typename Layer>
Results RunLayer(const Layer& layer, const torch::Tensor& x,
                 const torch::Tensor& output_gradient) {
  const torch::Tensor leaf = x.clone().requires_grad_();
  // A temporary tensor, which a layer may overwrite.
  const torch::Tensor output = layer(leaf.mul(1));
  output.backward(output_gradient);
  return {output.detach(), leaf.grad()};
}

void ExpectAtensResults(const torch::Tensor& x) {
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes[2] /= 2;
  sizes[3] /= 2;
  const torch::Tensor gradient = at::randn(sizes).to(x.scalar_type());
  const Results expected = RunLayer(
      [](const torch::Tensor& in) { return at::max_pool2d(at::relu(in), 2); },
      x, gradient);
  const Results actual = RunLayer(ReluMaxPool, x, gradient);
  EXPECT_EQ(actual.output.scalar_type(), x.scalar_type());
  EXPECT_TRUE(actual.output.equal(expected.output));
  EXPECT_TRUE(actual.gradient.equal(expected.gradient));
}

// Rounded, so that some of four values are equal, often the largest ones.
torch::Tensor Inputs(std::vector<int64_t> sizes) {
  return at::randn(sizes).mul(4).round().div(4);
}

class ReluMaxPoolTest : public testing::TestWithParam<c10::ScalarType> {};

TEST_P(ReluMaxPoolTest, GivesAtensResults) {
  // The last two are left to ATen, which drops an odd row or column.
  for (const std::vector<int64_t>& sizes :
       std::vector<std::vector<int64_t>>{{2, 32, 8, 8},
                                         {3, 19, 4, 6},
                                         {1, 1, 2, 2},
                                         {70, 32, 32, 32},
                                         {2, 8, 5, 4},
                                         {2, 8, 4, 5}}) {
    SCOPED_TRACE(testing::PrintToString(sizes));
    const torch::Tensor x = Inputs(sizes).to(GetParam());
    ExpectAtensResults(x);
    ExpectAtensResults(x.contiguous(at::MemoryFormat::ChannelsLast));
  }
}

TEST_P(ReluMaxPoolTest, PassesOnWhatIsNotFinite) {
  torch::Tensor x = Inputs({1, 4, 2, 2}).to(GetParam());
  x[0][0][1][0] = std::numeric_limits<float>::quiet_NaN();
  x[0][1][0][1] = -std::numeric_limits<float>::quiet_NaN();
  x[0][2][1][1] = std::numeric_limits<float>::infinity();
  x[0][3] = -std::numeric_limits<float>::infinity();
  const Results results =
      RunLayer(ReluMaxPool, x, at::ones({1, 4, 1, 1}).to(GetParam()));
  const torch::Tensor output = results.output.flatten().to(at::kFloat);
  EXPECT_TRUE(output[0].isnan().item<bool>());
  EXPECT_TRUE(output[1].isnan().item<bool>());
  EXPECT_TRUE(output[2].isinf().item<bool>());
  EXPECT_EQ(output[3].item<float>(), 0);
  EXPECT_EQ(results.gradient[0][0][1][0].item<float>(), 1);
  EXPECT_EQ(results.gradient[0][1][0][1].item<float>(), 1);
  EXPECT_EQ(results.gradient[0][2][1][1].item<float>(), 1);
  EXPECT_EQ(results.gradient.sum().item<float>(), 3);
}

INSTANTIATE_TEST_SUITE_P(Types, ReluMaxPoolTest,
                         testing::Values(at::kFloat, at::kBFloat16, at::kHalf),
                         [](const auto& info) {
                           return std::string(c10::toString(info.param));
                         });

}  // namespace
}  // namespace rankwise
