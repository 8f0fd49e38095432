#include "trainers/layers/linear.h"

#include <ATen/ops/linear.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <vector>

namespace rankwise {
namespace {

using torch::autograd::grad;
using torch::autograd::variable_list;

// The largest difference from `expected` in units of its largest value.
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

}  // namespace
}  // namespace rankwise
