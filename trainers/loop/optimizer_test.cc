#include "trainers/loop/optimizer.h"

#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "trainers/loop/config.h"

namespace rankwise {
namespace {

TEST(LearningRateTest, ConstantIsThePeakFromTheFirstStep) {
  const LearningRate rate{.peak = 0.1};
  EXPECT_DOUBLE_EQ(rate.At(1), 0.1);
  EXPECT_DOUBLE_EQ(rate.At(1000000), 0.1);
}

TEST(LearningRateTest, WarmUpRisesLinearlyAndReachesThePeak) {
  const LearningRate rate{.peak = 0.4, .warmup_steps = 4};
  EXPECT_DOUBLE_EQ(rate.At(1), 0.1);
  EXPECT_DOUBLE_EQ(rate.At(2), 0.2);
  EXPECT_DOUBLE_EQ(rate.At(3), 0.3);
  EXPECT_DOUBLE_EQ(rate.At(4), 0.4);
  EXPECT_DOUBLE_EQ(rate.At(5), 0.4);
}

TEST(LearningRateTest, CosineFallsFromThePeakThroughHalfToZero) {
  const LearningRate rate{
      .peak = 1.0, .warmup_steps = 10, .total_steps = 110, .cosine = true};
  EXPECT_DOUBLE_EQ(rate.At(10), 1.0);
  EXPECT_NEAR(rate.At(60), 0.5, 1e-12);
  EXPECT_NEAR(rate.At(110), 0.0, 1e-12);
  for (int64_t step = 11; step <= 110; ++step)
    EXPECT_LT(rate.At(step), rate.At(step - 1));
}

TEST(LearningRateTest, CosineWithoutWarmUpGoesFromThePeakToZero) {
  const LearningRate rate{
      .peak = 2.0, .warmup_steps = 0, .total_steps = 9, .cosine = true};
  EXPECT_DOUBLE_EQ(rate.At(1), 2.0);
  EXPECT_NEAR(rate.At(5), 1.0, 1e-12);
  EXPECT_NEAR(rate.At(9), 0.0, 1e-12);
}

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

// Trains one copy with an Optimizer and one with LibTorch's on the same data;
// returns the largest difference of any weight.
template <typename Reference, typename Options>
double DifferenceAfterTraining(const OptimizerConfig& config, Options options) {
  auto ours = SeededModel();
  auto theirs = SeededModel();
  auto optimizer = MakeOptimizer(TrainableParameters(*ours), config);
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
  const OptimizerConfig nesterov{
      .name = "sgd", .learning_rate = 0.1, .momentum = 0.9, .nesterov = true};
  EXPECT_LT((DifferenceAfterTraining<torch::optim::SGD>(
                nesterov,
                torch::optim::SGDOptions(0.1).momentum(0.9).nesterov(true))),
            1e-5);
}

TEST(OptimizerTest, UnknownNameIsRefused) {
  const absl::Status status =
      MakeOptimizer(TrainableParameters(TwoLayers()), {.name = "lion"})
          .status();
  EXPECT_THAT(
      std::string(status.message()),
      HasSubstr(
          "--optimizer=lion: no such optimizer; known: adam, adamw, sgd"));
}

TEST(OptimizerTest, ParametersWithoutGradientStay) {
  auto model = SeededModel();
  const torch::Tensor before = model->b->weight.detach().clone();
  auto optimizer = MakeOptimizer(TrainableParameters(*model), {.name = "adam"});
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
    auto optimizer = MakeOptimizer(TrainableParameters(*model),
                                   {.name = "sgd", .clip_grad_norm = max_norm});
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
  auto optimizer = MakeOptimizer(TrainableParameters(*model), config);
  auto step = [](TwoLayers& m, Optimizer& o) {
    o.ZeroGrad();
    m.Forward(at::ones({2, 6})).square().sum().backward();
    o.Step(0.05);
  };
  for (int i = 0; i < 3; ++i) step(*model, **optimizer);

  auto copy = std::make_unique<TwoLayers>();
  auto restored = MakeOptimizer(TrainableParameters(*copy), config);
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
  auto together =
      std::move(*MakeOptimizer(TrainableParameters(*whole), config));
  auto first =
      std::move(*MakeOptimizer(TrainableParameters(*parts->a), config));
  auto second =
      std::move(*MakeOptimizer(TrainableParameters(*parts->b), config));
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
  first->ReduceNormAcross([&](torch::Tensor& sum) { sum.add_(norms[1]); }, {});
  second->ReduceNormAcross([&](torch::Tensor& sum) { sum.add_(norms[0]); }, {});
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
  auto optimizer =
      std::move(*MakeOptimizer(TrainableParameters(*model), config));
  model->Forward(at::randn({8, 6})).square().mean().backward();
  double seen = 0;
  optimizer->ReduceNormAcross(
      [&](torch::Tensor& sum) { seen = sum.item<double>(); },
      {"a.weight", "a.bias", "b.bias"});
  const double expected =
      model->b->weight.grad().norm().square().item<double>();
  optimizer->Step(0.1);
  EXPECT_NEAR(seen, expected, 1e-6 * expected);
}

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr GradScalerConfig kQuick{.initial_scale = 4, .growth_interval = 2};

OptimizerConfig Named(const std::string& name) {
  return {.name = name, .momentum = name == "sgd" ? 0.9 : 0};
}

// A linear layer and its optimizer.
struct Training {
  explicit Training(const OptimizerConfig& config) {
    at::manual_seed(5);
    model = std::make_unique<torch::nn::LinearImpl>(3, 1);
    optimizer = *MakeOptimizer(TrainableParameters(*model), config);
  }
  void Step(const torch::Tensor& input) {
    optimizer->ScaledLoss(model->forward(input).square().mean()).backward();
    optimizer->Step(0.1);
    optimizer->ZeroGrad();
  }
  NamedTensors Everything() const {
    NamedTensors all = optimizer->State();
    for (const auto& entry : model->named_parameters())
      all.emplace_back(entry.key(), entry.value().detach());
    return all;
  }
  std::unique_ptr<torch::nn::LinearImpl> model;
  std::unique_ptr<Optimizer> optimizer;
};

bool IsOfTheScaler(const std::string& name) {
  return name.rfind("grad_scaler.", 0) == 0;
}

// Expected: the values of torch.amp.GradScaler("cpu", init_scale=4,
// growth_interval=2) of PyTorch 2.11 with torch.optim.Adam for the same finite
// and infinite inputs. The third step overflows, and the count restarts.
TEST(GradScalerTest, ScalesAndStepsAreThoseOfPyTorch) {
  Training training(Named("adam"));
  training.optimizer->UseGradScaler(kQuick);
  const std::vector<double> inputs = {1, 1, kInfinity, 1, 1, 1};
  std::vector<double> scales, steps;
  for (double input : inputs) {
    training.Step(at::ones({2, 3}) * input);
    scales.push_back(training.optimizer->grad_scaler()->scale());
    for (const auto& [name, tensor] : training.optimizer->State())
      if (name == "step.weight") steps.push_back(tensor.item<double>());
  }
  EXPECT_EQ(scales, (std::vector<double>{4, 8, 4, 4, 8, 8}));
  EXPECT_EQ(steps, (std::vector<double>{1, 2, 2, 3, 4, 5}));
  EXPECT_EQ(training.optimizer->grad_scaler()->skipped_steps(), 1);
}

TEST(GradScalerTest, StartsWithPyTorchsDefaults) {
  GradScaler scaler(at::kCPU, {});
  EXPECT_EQ(scaler.scale(), 65536);
  for (int step = 1; step <= 2000; ++step) {
    EXPECT_EQ(scaler.scale(), 65536);
    scaler.Unscale({});
    scaler.Update();
  }
  EXPECT_EQ(scaler.scale(), 131072);
}

class GradScalerOfTest : public ::testing::TestWithParam<std::string> {};

TEST_P(GradScalerOfTest, AnOverflowChangesNothingButTheScale) {
  OptimizerConfig config = Named(GetParam());
  config.clip_grad_norm = 1;
  config.weight_decay = 0.1;
  Training training(config);
  training.optimizer->UseGradScaler({});
  training.Step(at::ones({2, 3}));
  NamedTensors before = training.Everything();
  for (auto& [name, tensor] : before) tensor = tensor.clone();
  for (double bad : {kInfinity, std::numeric_limits<double>::quiet_NaN()}) {
    training.Step(at::ones({2, 3}) * bad);
    const NamedTensors after = training.Everything();
    for (size_t i = 0; i < before.size(); ++i) {
      if (IsOfTheScaler(before[i].first)) continue;
      EXPECT_TRUE(at::equal(before[i].second, after[i].second))
          << before[i].first;
    }
  }
  EXPECT_EQ(training.optimizer->grad_scaler()->scale(), 65536 / 4);
}

// A power of two loses no bits of fp32 gradients: a difference would show that
// gradients were clipped or used before they were unscaled.
TEST_P(GradScalerOfTest, WithoutOverflowTrainsAsWithoutScaler) {
  OptimizerConfig config = Named(GetParam());
  config.clip_grad_norm = 0.25;
  Training plain(config), scaled(config);
  scaled.optimizer->UseGradScaler(kQuick);
  for (int step = 0; step < 8; ++step) {
    const torch::Tensor input = at::randn({4, 3});
    plain.Step(input);
    scaled.Step(input);
  }
  EXPECT_EQ(scaled.optimizer->grad_scaler()->scale(), 64);
  EXPECT_TRUE(at::equal(plain.model->weight, scaled.model->weight));
}

INSTANTIATE_TEST_SUITE_P(Optimizers, GradScalerOfTest,
                         ::testing::Values("adam", "sgd"));

}  // namespace

}  // namespace rankwise
