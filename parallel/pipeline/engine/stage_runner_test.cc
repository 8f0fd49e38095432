#include "parallel/pipeline/engine/stage_runner.h"

#include <functional>
#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "ATen/Functions.h"
#include "ATen/Parallel.h"
#include "ATen/TensorOperators.h"
#include "ATen/core/grad_mode.h"
#include "ATen/record_function.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "torch/csrc/autograd/autograd.h"

namespace rankwise {
namespace {

using Tensors = std::vector<at::Tensor>;

struct Model {
  std::string name;
  std::vector<int64_t> input_shape;
  std::vector<std::vector<int64_t>> parameter_shapes;
  std::function<at::Tensor(const at::Tensor& input, const Tensors& w)> forward;
};

void PrintTo(const Model& model, std::ostream* out) { *out << model.name; }

// Returns a leaf that depends only on its shape and `seed`.
at::Tensor Leaf(const std::vector<int64_t>& shape, int seed) {
  int64_t elements = 1;
  for (int64_t size : shape) elements *= size;
  at::Tensor leaf = at::sin(at::arange(elements, at::kFloat) * 1.7 + seed);
  return leaf.view(shape).mul_(0.5).detach().requires_grad_();
}

struct Case {
  at::Tensor input;
  Tensors parameters;
  at::Tensor output, grad_output;
};

Case CaseOf(const Model& model) {
  at::set_num_threads(1);
  Case result;
  result.input = Leaf(model.input_shape, 1);
  for (size_t i = 0; i < model.parameter_shapes.size(); ++i) {
    result.parameters.push_back(Leaf(model.parameter_shapes[i], 2 + i));
  }
  result.output = model.forward(result.input, result.parameters);
  result.grad_output = Leaf(result.output.sizes().vec(), 99).detach();
  return result;
}

Tensors Gradients(const Tensors& tensors) {
  Tensors gradients;
  for (const at::Tensor& tensor : tensors) gradients.push_back(tensor.grad());
  return gradients;
}

void ExpectSame(const Tensors& a, const Tensors& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(a[i].defined(), b[i].defined()) << i;
    EXPECT_TRUE(!a[i].defined() || at::equal(a[i], b[i])) << i;
  }
}

at::Tensor Linears(const at::Tensor& input, const Tensors& w) {
  at::Tensor x = input;
  for (size_t i = 0; i < w.size(); i += 2) {
    x = at::relu(at::linear(x, w[i], w[i + 1]));
  }
  return x;
}

at::Tensor Attention(const at::Tensor& x, const Tensors& w) {
  const at::Tensor normed = at::layer_norm(x, {8}, w[0], w[1]);
  const Tensors qkv = at::linear(normed, w[2]).chunk(3, -1);
  const auto heads = [](const at::Tensor& t) {
    return t.view({2, 5, 2, 4}).transpose(1, 2);
  };
  const at::Tensor mixed = at::scaled_dot_product_attention(
      heads(qkv[0]), heads(qkv[1]), heads(qkv[2]), {}, 0.0,
      /*is_causal=*/true);
  return x + at::linear(mixed.transpose(1, 2).reshape({2, 5, 8}), w[3]);
}

const std::vector<Model>& Models() {
  static const auto* models = new std::vector<Model>{
      {"Linears", {4, 6}, {{8, 6}, {8}, {8, 8}, {8}, {3, 8}, {3}}, Linears},
      {"LayerNorm",
       {4, 6},
       {{6}, {6}, {6, 6}},
       [](const at::Tensor& x, const Tensors& w) {
         return at::linear(at::layer_norm(x, {6}, w[0], w[1]), w[2]);
       }},
      {"Convolutions",
       {2, 3, 8, 8},
       {{4, 3, 3, 3}, {4}, {2, 4, 3, 3}, {2}},
       [](const at::Tensor& x, const Tensors& w) {
         const at::Tensor hidden = at::relu(at::conv2d(
             x.contiguous(at::MemoryFormat::ChannelsLast), w[0], w[1], 1, 1));
         return at::conv2d(at::max_pool2d(hidden, 2), w[2], w[3]);
       }},
      {"Attention", {2, 5, 8}, {{8}, {8}, {24, 8}, {8, 8}}, Attention},
      {"OneWeightUsedTwice",
       {4, 6},
       {{6, 6}, {6}},
       [](const at::Tensor& x, const Tensors& w) {
         return at::linear(at::relu(at::linear(x, w[0], w[1])), w[0], w[1]);
       }},
      // The branches of both linear layers share a node, the normalisation.
      {"ComputedWeightUsedTwice",
       {4, 6},
       {{6, 6}},
       [](const at::Tensor& x, const Tensors& w) {
         const at::Tensor unit = w[0] / w[0].norm();
         return at::linear(at::relu(at::linear(x, unit)), unit);
       }},
      {"NodeWithTwoOutputs",
       {4, 6},
       {{4, 6}},
       [](const at::Tensor& x, const Tensors& w) {
         const Tensors halves = (x * w[0]).split(3, 1);
         return halves[0] * halves[1] + halves[1];
       }},
      {"UnusedParameter",
       {4, 6},
       {{4, 6}, {6}},
       [](const at::Tensor& x, const Tensors& w) { return x * w[0]; }},
      {"NoParameters",
       {4, 6},
       {},
       [](const at::Tensor& x, const Tensors&) { return at::relu(x); }},
      {"OutputIsInput",
       {4, 6},
       {},
       [](const at::Tensor& x, const Tensors&) { return x; }},
  };
  return *models;
}

class SplitBackwardModelTest : public testing::TestWithParam<Model> {};

TEST_P(SplitBackwardModelTest, BothHalvesAreTheFusedBackwardBitForBit) {
  const Case fused = CaseOf(GetParam());
  const Case split = CaseOf(GetParam());
  for (int micro_batch = 0; micro_batch < 3; ++micro_batch) {
    fused.input.mutable_grad().reset();
    torch::autograd::backward(
        {GetParam().forward(fused.input, fused.parameters)},
        {fused.grad_output});
    SplitBackward backward(GetParam().forward(split.input, split.parameters),
                           split.input);
    const at::Tensor gradient = backward.InputGrad(split.grad_output);
    backward.WeightGrad();
    ExpectSame({gradient}, {fused.input.grad()});
    ExpectSame(Gradients(split.parameters), Gradients(fused.parameters));
  }
  EXPECT_FALSE(split.input.grad().defined());
}

// As in a zero-bubble schedule, where W is delayed.
TEST_P(SplitBackwardModelTest, WeightGradientsMayFollowMuchLater) {
  const Case fused = CaseOf(GetParam());
  const Case split = CaseOf(GetParam());
  std::vector<SplitBackward> backwards;
  for (int micro_batch = 0; micro_batch < 3; ++micro_batch) {
    torch::autograd::backward(
        {GetParam().forward(fused.input, fused.parameters)},
        {fused.grad_output});
    backwards.emplace_back(GetParam().forward(split.input, split.parameters),
                           split.input);
    backwards.back().InputGrad(split.grad_output);
    for (const at::Tensor& gradient : Gradients(split.parameters)) {
      EXPECT_FALSE(gradient.defined());
    }
  }
  for (SplitBackward& backward : backwards) backward.WeightGrad();
  ExpectSame(Gradients(split.parameters), Gradients(fused.parameters));
}

TEST_P(SplitBackwardModelTest, TheFirstStageDoesAllInWeightGrad) {
  if (GetParam().parameter_shapes.empty()) return;
  const Case fused = CaseOf(GetParam());
  torch::autograd::backward({fused.output}, {fused.grad_output});
  const Case split = CaseOf(GetParam());
  SplitBackward backward(
      GetParam().forward(split.input.detach(), split.parameters), at::Tensor());
  EXPECT_FALSE(backward.InputGrad(split.grad_output).defined());
  EXPECT_FALSE(split.parameters[0].grad().defined());
  backward.WeightGrad();
  ExpectSame(Gradients(split.parameters), Gradients(fused.parameters));
}

INSTANTIATE_TEST_SUITE_P(Models, SplitBackwardModelTest,
                         testing::ValuesIn(Models()),
                         [](const auto& info) { return info.param.name; });

TEST(SplitBackwardTest, AnOutputThatIgnoresTheInputSendsZerosBack) {
  const at::Tensor input = Leaf({2, 3}, 1), weight = Leaf({4}, 2);
  SplitBackward backward(weight * 3, input);
  EXPECT_TRUE(at::equal(backward.InputGrad(at::ones({4})), at::zeros({2, 3})));
  backward.WeightGrad();
  EXPECT_TRUE(at::equal(weight.grad(), at::full({4}, 3.f)));
}

TEST(SplitBackwardTest, AnOutputWithoutAGraphIsRefused) {
  EXPECT_THROW(SplitBackward(at::ones({2}), Leaf({2}, 1)), c10::Error);
}

// The number of runs of the named operators and backward nodes, on this thread.
std::map<std::string, int>& Counts() {
  thread_local std::map<std::string, int> counts;
  return counts;
}

std::map<std::string, int> CountDuring(const std::function<void()>& action) {
  const auto handle = at::addThreadLocalCallback(
      at::RecordFunctionCallback([](const at::RecordFunction& function)
                                     -> std::unique_ptr<at::ObserverContext> {
        ++Counts()[function.name()];
        return nullptr;
      }));
  Counts().clear();
  action();
  at::removeCallback(handle);
  return Counts();
}

TEST(SplitBackwardTest, NeitherHalfComputesWhatTheOtherDoes) {
  const Case fused = CaseOf(Models()[0]), split = CaseOf(Models()[0]);
  SplitBackward backward(split.output, split.input);
  auto all = CountDuring(
      [&] { torch::autograd::backward({fused.output}, {fused.grad_output}); });
  auto input = CountDuring([&] { backward.InputGrad(split.grad_output); });
  auto weight = CountDuring([&] { backward.WeightGrad(); });
  const std::string accumulate = "torch::autograd::AccumulateGrad";
  EXPECT_EQ(all["aten::mm"], 6);
  EXPECT_EQ(input["aten::mm"], 3);
  EXPECT_EQ(weight["aten::mm"], 3);
  EXPECT_EQ(input["ReluBackward0"], 3);
  EXPECT_EQ(weight["ReluBackward0"], 0);
  EXPECT_EQ(input[accumulate], 0);
  EXPECT_EQ(weight[accumulate], 6);
}

TEST(SplitBackwardTest, EachHalfFreesWhatItWasTheLastToUse) {
  const at::Tensor input = Leaf({2, 3}, 1);
  const at::Tensor first = Leaf({2, 3}, 2), second = Leaf({2, 3}, 3);
  const at::Tensor factor = first.detach() * 2;
  // Needed only on the path between two boundaries.
  at::Tensor output = (input * first) * factor * second;
  SplitBackward backward(output, input);
  output.reset();
  EXPECT_GT(factor.use_count(), 1);
  backward.InputGrad(at::ones({2, 3}));
  EXPECT_EQ(factor.use_count(), 1);
  EXPECT_GT(input.use_count(), 1);  // for the gradient of `first`
  backward.WeightGrad();
  EXPECT_EQ(input.use_count(), 1);
}

}  // namespace
}  // namespace rankwise
