#include "trainers/optimizer.h"

#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <ATen/ops/randn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <string>

namespace rankwise {
namespace {

using ::testing::HasSubstr;

struct TwoLayers : torch::nn::Module {
  TwoLayers() {
    a = register_module("a", torch::nn::Linear(6, 5));
    b = register_module("b", torch::nn::Linear(5, 1));
  }
  torch::Tensor Forward(const torch::Tensor& x) { return b(a(x).relu()); }
  torch::nn::Linear a{nullptr}, b{nullptr};
};

std::unique_ptr<TwoLayers> SeededModel() {
  at::manual_seed(3);
  return std::make_unique<TwoLayers>();
}

// Trains a copy each with `ours` and LibTorch's optimizer on the same data; the
// largest difference of any weight.
template <typename Reference, typename Options>
double DifferenceAfterTraining(const OptimizerConfig& config, Options options) {
  auto ours = SeededModel();
  auto theirs = SeededModel();
  auto optimizer = MakeOptimizer(*ours, config);
  EXPECT_TRUE(optimizer.ok()) << optimizer.status();
  Reference reference(theirs->parameters(), options);
  for (int step = 0; step < 20; ++step) {
    const torch::Tensor x = at::randn({8, 6});
    (*optimizer)->ZeroGrad();
    ours->Forward(x).square().mean().backward();
    (*optimizer)->Step(config.learning_rate);
    reference.zero_grad();
    theirs->Forward(x).square().mean().backward();
    reference.step();
  }
  double largest = 0;
  for (size_t i = 0; i < ours->parameters().size(); ++i) {
    const torch::Tensor difference =
        ours->parameters()[i] - theirs->parameters()[i];
    largest = std::max(largest, difference.abs().max().item<double>());
  }
  return largest;
}

TEST(OptimizerTest, AdamFollowsLibTorchs) {
  const OptimizerConfig config{
      .name = "adam", .learning_rate = 1e-2, .weight_decay = 0.1};
  EXPECT_LT((DifferenceAfterTraining<torch::optim::Adam>(
                config, torch::optim::AdamOptions(1e-2).weight_decay(0.1))),
            1e-5);
}

TEST(OptimizerTest, AdamWFollowsLibTorchs) {
  const OptimizerConfig config{
      .name = "adamw", .learning_rate = 1e-2, .weight_decay = 0.1};
  EXPECT_LT((DifferenceAfterTraining<torch::optim::AdamW>(
                config, torch::optim::AdamWOptions(1e-2).weight_decay(0.1))),
            1e-5);
}

TEST(OptimizerTest, SgdFollowsLibTorchs) {
  const OptimizerConfig plain{.name = "sgd", .learning_rate = 0.1};
  EXPECT_LT((DifferenceAfterTraining<torch::optim::SGD>(
                plain, torch::optim::SGDOptions(0.1))),
            1e-6);
  const OptimizerConfig momentum{.name = "sgd",
                                 .learning_rate = 0.1,
                                 .weight_decay = 0.01,
                                 .momentum = 0.9};
  EXPECT_LT(
      (DifferenceAfterTraining<torch::optim::SGD>(
          momentum,
          torch::optim::SGDOptions(0.1).momentum(0.9).weight_decay(0.01))),
      1e-5);
}

TEST(OptimizerTest, UnknownNameIsRefused) {
  const absl::Status status =
      MakeOptimizer(TwoLayers(), {.name = "lion"}).status();
  EXPECT_THAT(
      std::string(status.message()),
      HasSubstr(
          "--optimizer=lion: no such optimizer; known: adam, adamw, sgd"));
}

TEST(OptimizerTest, ParametersWithoutGradientStay) {
  auto model = SeededModel();
  const torch::Tensor before = model->b->weight.detach().clone();
  auto optimizer = MakeOptimizer(*model, {.name = "adam"});
  model->a(at::ones({2, 6})).sum().backward();
  (*optimizer)->Step(0.1);
  EXPECT_TRUE(model->b->weight.equal(before));
}

// With SGD at rate 1 the update is the clipped gradient itself.
TEST(OptimizerTest, ClippingLimitsTheJointNorm) {
  for (const double max_norm : {0.5, 1e6}) {
    auto model = SeededModel();
    std::vector<torch::Tensor> before;
    for (const torch::Tensor& p : model->parameters())
      before.push_back(p.detach().clone());
    auto optimizer =
        MakeOptimizer(*model, {.name = "sgd", .clip_grad_norm = max_norm});
    (model->Forward(at::ones({4, 6})).sum() * 10).backward();
    double unclipped = 0;
    for (const torch::Tensor& p : model->parameters())
      unclipped += p.grad().square().sum().item<double>();
    (*optimizer)->Step(1.0);
    double squared = 0;
    for (size_t i = 0; i < before.size(); ++i) {
      squared +=
          (model->parameters()[i] - before[i]).square().sum().item<double>();
    }
    EXPECT_NEAR(std::sqrt(squared), std::min(max_norm, std::sqrt(unclipped)),
                1e-3);
  }
}

TEST(OptimizerTest, StateCopiedIntoAnotherOptimizerContinuesBitEqual) {
  const OptimizerConfig config{.name = "adam", .learning_rate = 0.05};
  auto model = SeededModel();
  auto optimizer = MakeOptimizer(*model, config);
  auto step = [](TwoLayers& m, Optimizer& o) {
    o.ZeroGrad();
    m.Forward(at::ones({2, 6})).square().sum().backward();
    o.Step(0.05);
  };
  for (int i = 0; i < 3; ++i) step(*model, **optimizer);

  auto copy = std::make_unique<TwoLayers>();
  auto restored = MakeOptimizer(*copy, config);
  {
    at::NoGradGuard no_grad;
    for (size_t i = 0; i < copy->parameters().size(); ++i)
      copy->parameters()[i].copy_(model->parameters()[i]);
    const NamedTensors from = (*optimizer)->State();
    NamedTensors to = (*restored)->State();
    ASSERT_EQ(from.size(), 12u);
    for (size_t i = 0; i < from.size(); ++i) {
      EXPECT_EQ(from[i].first, to[i].first);
      to[i].second.copy_(from[i].second);
    }
  }
  step(*model, **optimizer);
  step(*copy, **restored);
  for (size_t i = 0; i < copy->parameters().size(); ++i) {
    EXPECT_TRUE(copy->parameters()[i].equal(model->parameters()[i]));
  }
}

// Two optimizers hold a layer each, as two pipeline stages would.
TEST(SharedNormTest, ClippingSeesTheNormOfAllParts) {
  OptimizerConfig config;
  config.name = "sgd";
  config.clip_grad_norm = 0.01;
  auto whole = SeededModel();
  auto parts = SeededModel();
  auto together = std::move(*MakeOptimizer(*whole, config));
  auto first = std::move(*MakeOptimizer(*parts->a, config));
  auto second = std::move(*MakeOptimizer(*parts->b, config));
  const torch::Tensor x = at::randn({8, 6});
  whole->Forward(x).square().mean().backward();
  parts->Forward(x).square().mean().backward();
  const torch::Tensor norms = at::stack(
      {at::cat({parts->a->weight.grad().flatten(), parts->a->bias.grad()})
           .norm()
           .square(),
       at::cat({parts->b->weight.grad().flatten(), parts->b->bias.grad()})
           .norm()
           .square()});
  first->ShareNorm([&](torch::Tensor& sum) { sum.add_(norms[1]); }, {});
  second->ShareNorm([&](torch::Tensor& sum) { sum.add_(norms[0]); }, {});
  together->Step(0.5);
  first->Step(0.5);
  second->Step(0.5);
  EXPECT_TRUE(at::allclose(whole->a->weight, parts->a->weight, 0, 1e-7));
  EXPECT_TRUE(at::allclose(whole->b->weight, parts->b->weight, 0, 1e-7));
}

TEST(SharedNormTest, WhatAnotherRankCountsIsLeftOut) {
  OptimizerConfig config;
  config.name = "sgd";
  config.clip_grad_norm = 1;
  auto model = SeededModel();
  auto optimizer = std::move(*MakeOptimizer(*model, config));
  model->Forward(at::randn({8, 6})).square().mean().backward();
  double seen = 0;
  optimizer->ShareNorm([&](torch::Tensor& sum) { seen = sum.item<double>(); },
                       {"a.weight", "a.bias", "b.bias"});
  const double expected =
      model->b->weight.grad().norm().square().item<double>();
  optimizer->Step(0.1);
  EXPECT_NEAR(seen, expected, 1e-6 * expected);
}

}  // namespace
}  // namespace rankwise
