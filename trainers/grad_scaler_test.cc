#include "trainers/grad_scaler.h"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "trainers/config.h"
#include "trainers/optimizer.h"

namespace rankwise {
namespace {

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
    optimizer = *MakeOptimizer(*model, config);
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

// What torch.amp.GradScaler("cpu", init_scale=4, growth_interval=2) of PyTorch
// 2.11 gives around torch.optim.Adam for the same finite and infinite inputs;
// by hand: the third step overflows, and the count starts anew.
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
    scaler.Begin();
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

// A power of two takes no bits from fp32 gradients: what differs would be
// gradients that were clipped or used before they were unscaled.
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
