#include "trainers/layers/linear.h"

#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <vector>

#include "trainers/layers/linear_bf16.h"

namespace rankwise {
namespace {

using torch::autograd::grad;
using torch::autograd::variable_list;

// Returns the largest difference from `expected` in units of its largest value.
double RelativeError(const torch::Tensor& actual,
                     const torch::Tensor& expected) {
  return ((actual - expected).abs().max() / expected.abs().max())
      .item<double>();
}

TEST(LinearTest, GivesAtensResultsButForRounding) {
  struct Sizes {
    int64_t rows, inputs, outputs;
  };
  for (const auto [rows, inputs, outputs] : std::vector<Sizes>{
           {64, 4096, 512}, {64, 512, 10}, {3, 7, 5}, {1, 10, 1}}) {
    SCOPED_TRACE(outputs);
    const variable_list arguments = {
        at::randn({rows, inputs}).requires_grad_(),
        at::randn({outputs, inputs}).requires_grad_(),
        at::randn({outputs}).requires_grad_()};
    const torch::Tensor dy = at::randn({rows, outputs});
    const torch::Tensor expected =
        at::linear(arguments[0], arguments[1], arguments[2]);
    const torch::Tensor actual =
        Linear(arguments[0], arguments[1], arguments[2]);
    EXPECT_LT(RelativeError(actual, expected), 1e-5);
    const variable_list expected_gradients = grad({expected}, arguments, {dy});
    const variable_list gradients = grad({actual}, arguments, {dy});
    for (size_t i = 0; i < arguments.size(); ++i) {
      EXPECT_TRUE(gradients[i].is_contiguous());
      EXPECT_LT(RelativeError(gradients[i], expected_gradients[i]), 1e-5);
    }
  }
}

TEST(LinearTest, ComputesOnlyGradientsThatAreAskedFor) {
  const torch::Tensor x = at::randn({4, 8});
  const torch::Tensor weight = at::randn({3, 8}).requires_grad_();
  const torch::Tensor y = Linear(x, weight, at::randn({3}));
  y.sum().backward();
  EXPECT_TRUE(weight.grad().defined());
  EXPECT_FALSE(x.grad().defined());
}

torch::Tensor LinearUnderAutocast(const variable_list& arguments) {
  at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  at::autocast::set_autocast_enabled(at::kCPU, true);
  torch::Tensor y = Linear(arguments[0], arguments[1], arguments[2]);
  at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(at::kCPU, false);
  return y;
}

torch::Tensor Rounded(const torch::Tensor& x) {
  return x.detach().to(at::kBFloat16).to(at::kDouble);
}

// Allows an error of the sum and, in bf16, of rounding for every value.
void ExpectNear(const torch::Tensor& actual, const torch::Tensor& expected,
                bool rounded) {
  const torch::Tensor error = (actual.to(at::kDouble) - expected).abs();
  const torch::Tensor bound =
      expected.abs() * (rounded ? 0x1p-8 : 0) + expected.abs().max() * 1e-5;
  EXPECT_TRUE((error <= bound).all().item<bool>()) << (error / bound).max();
}

class Bf16LinearTest : public ::testing::TestWithParam<std::vector<int64_t>> {
 protected:
  const int64_t rows_ = GetParam()[0], inputs_ = GetParam()[1],
                outputs_ = GetParam()[2];
  const variable_list arguments_ = {
      at::randn({rows_, inputs_}).requires_grad_(),
      at::randn({outputs_, inputs_}).requires_grad_(),
      at::randn({outputs_}).requires_grad_()};
  const torch::Tensor dy_ = at::randn({rows_, outputs_}).to(at::kBFloat16);
};

TEST_P(Bf16LinearTest, GivesTheProductsOfRoundedArguments) {
  const torch::Tensor x = Rounded(arguments_[0]),
                      weight = Rounded(arguments_[1]),
                      bias = Rounded(arguments_[2]), dy = Rounded(dy_);
  const torch::Tensor y = LinearUnderAutocast(arguments_);
  EXPECT_EQ(y.scalar_type(), at::kBFloat16);
  ExpectNear(y, at::linear(x, weight, bias), /*rounded=*/true);
  const variable_list gradients = grad({y}, arguments_, {dy_});
  for (const torch::Tensor& gradient : gradients)
    EXPECT_EQ(gradient.scalar_type(), at::kFloat);
  const bool is_atens = !Bf16LinearSavesTime(rows_, inputs_, outputs_);
  ExpectNear(gradients[0], dy.mm(weight), /*rounded=*/true);
  ExpectNear(gradients[1], dy.t().mm(x), /*rounded=*/is_atens);
  if (!is_atens) ExpectNear(gradients[2], dy.sum(0), /*rounded=*/false);
}

TEST_P(Bf16LinearTest, GivesTheSameBitsOnOneThread) {
  if (!Bf16LinearSavesTime(rows_, inputs_, outputs_)) GTEST_SKIP() << "ATen's";
  std::vector<variable_list> results;
  for (const int threads : {2, 1}) {
    at::set_num_threads(threads);
    const torch::Tensor y = LinearUnderAutocast(arguments_);
    results.push_back(grad({y}, arguments_, {dy_}));
    results.back().push_back(y);
  }
  at::set_num_threads(2);
  for (size_t i = 0; i < results[0].size(); ++i)
    EXPECT_TRUE(results[0][i].equal(results[1][i])) << i;
}

// Tests the functions themselves, even if Linear leaves these sizes to ATen.
TEST_P(Bf16LinearTest, ProductsAreThoseOfRoundedArgumentsOnAnyNumberOfThreads) {
  if (!HasBf16Linear(rows_, inputs_, outputs_)) GTEST_SKIP() << "ATen's";
  const at::NoGradGuard no_grad;
  const torch::Tensor x = arguments_[0].to(at::kBFloat16);
  const int threads = at::get_num_threads();
  std::vector<variable_list> results;
  for (const int used : {2, 1}) {
    at::set_num_threads(used);
    results.push_back({Bf16Linear(x, arguments_[1], arguments_[2]),
                       Bf16LinearInputGradient(dy_, arguments_[1]),
                       Bf16LinearWeightGradient(dy_, x)});
  }
  at::set_num_threads(threads);
  const torch::Tensor weight = Rounded(arguments_[1]), dy = Rounded(dy_);
  ExpectNear(results[0][0],
             at::linear(Rounded(x), weight, Rounded(arguments_[2])),
             /*rounded=*/true);
  ExpectNear(results[0][1], dy.mm(weight), /*rounded=*/true);
  ExpectNear(results[0][2], dy.t().mm(Rounded(x)), /*rounded=*/false);
  for (size_t i = 0; i < results[0].size(); ++i)
    EXPECT_TRUE(results[0][i].equal(results[1][i])) << i;
}

TEST_P(Bf16LinearTest, ComputesOnlyGradientsThatAreAskedFor) {
  const variable_list all =
      grad({LinearUnderAutocast(arguments_)}, arguments_, {dy_});
  for (size_t i = 0; i < arguments_.size(); ++i) {
    variable_list some;
    for (const torch::Tensor& argument : arguments_)
      some.push_back(argument.detach());
    some[i].requires_grad_();
    LinearUnderAutocast(some).backward(dy_);
    for (size_t j = 0; j < some.size(); ++j)
      EXPECT_EQ(some[j].grad().defined(), i == j);
    EXPECT_TRUE(some[i].grad().equal(all[i]));
  }
}

// The third has too few weights to save time; ATen computes the last two.
INSTANTIATE_TEST_SUITE_P(Sizes, Bf16LinearTest,
                         ::testing::Values(std::vector<int64_t>{64, 4096, 512},
                                           std::vector<int64_t>{32, 2048, 520},
                                           std::vector<int64_t>{64, 512, 16},
                                           std::vector<int64_t>{63, 2048, 512},
                                           std::vector<int64_t>{64, 2056,
                                                                516}));

}  // namespace
}  // namespace rankwise
