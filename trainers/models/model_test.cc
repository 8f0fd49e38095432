#include "trainers/models/model.h"

#include <ATen/Context.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>

#include <memory>
#include <string>
#include <vector>

namespace rankwise {
namespace {

int64_t CountParameters(const torch::nn::Module& model) {
  int64_t count = 0;
  for (const torch::Tensor& parameter : model.parameters())
    count += parameter.numel();
  return count;
}

using ::testing::ElementsAre;

std::vector<std::string> ParameterNames(const torch::nn::Module& model) {
  std::vector<std::string> names;
  for (const auto& entry : model.named_parameters())
    names.push_back(entry.key());
  return names;
}

TEST(ModelTest, SimpleCnnHasPythonsNamesAndSizes) {
  auto model = std::make_shared<Model>(*MakeModelSpec({.name = "simple_cnn"}));
  EXPECT_THAT(
      ParameterNames(*model),
      ElementsAre("conv1.weight", "conv1.bias", "conv2.weight", "conv2.bias",
                  "fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"));
  EXPECT_EQ(CountParameters(*model), 2122186);
  EXPECT_THAT(model->Forward(at::randn({5, 3, 32, 32})).sizes().vec(),
              ElementsAre(5, 10));
}

TEST(ModelTest, TheSeedDecidesTheWeights) {
  at::manual_seed(7);
  auto first = std::make_shared<Model>(*MakeModelSpec({.name = "linear"}));
  at::manual_seed(7);
  auto same = std::make_shared<Model>(*MakeModelSpec({.name = "linear"}));
  auto other = std::make_shared<Model>(*MakeModelSpec({.name = "linear"}));
  EXPECT_TRUE(first->parameters()[0].equal(same->parameters()[0]));
  EXPECT_FALSE(first->parameters()[0].equal(other->parameters()[0]));
}

TEST(ModelTest, ChannelsLastChangesTheLayoutAndNotTheOutput) {
  at::manual_seed(0);
  auto model = std::make_shared<Model>(*MakeModelSpec({.name = "simple_cnn"}));
  const torch::Tensor input = at::randn({4, 3, 32, 32});
  const torch::Tensor before = model->Forward(input);
  ToChannelsLast(*model);
  EXPECT_TRUE(
      model->parameters()[0].is_contiguous(at::MemoryFormat::ChannelsLast));
  const torch::Tensor after =
      model->Forward(input.contiguous(at::MemoryFormat::ChannelsLast));
  EXPECT_LT((before - after).abs().max().item<float>(), 1e-5);
}

TEST(ModelTest, LossesAreMeansOverTheBatch) {
  const torch::Tensor output = at::tensor({1.0f, 3.0f}).view({2, 1});
  const torch::Tensor target = at::tensor({0.0f, 0.0f}).view({2, 1});
  EXPECT_FLOAT_EQ(
      Loss(LossKind::kMeanSquaredError, output, target).item<float>(), 5.0f);
  const torch::Tensor logits = at::tensor({0.0f, 0.0f}).view({1, 2});
  EXPECT_NEAR(
      Loss(LossKind::kCrossEntropy, logits, at::tensor({int64_t{1}}, at::kLong))
          .item<float>(),
      0.693147f, 1e-5);
}

TEST(ModelTest, ALossOverTokensIsTheMeanOverAllOfThem) {
  const torch::Tensor logits = at::randn({2, 3, 5});
  const torch::Tensor target =
      at::tensor(std::vector<int64_t>{0, 1, 2, 3, 4, 0}, at::kLong);
  const double expected =
      Loss(LossKind::kCrossEntropy, logits.view({6, 5}), target).item<double>();
  EXPECT_DOUBLE_EQ(
      Loss(LossKind::kCrossEntropy, logits, target.view({2, 3})).item<double>(),
      expected);
}

TEST(ModelTest, FindsBatchNorm) {
  EXPECT_FALSE(HasBatchNorm(
      *std::make_shared<Model>(*MakeModelSpec({.name = "simple_cnn"}))));
  struct Normalised : torch::nn::Module {
    Normalised() { register_module("norm", torch::nn::BatchNorm2d(3)); }
  };
  EXPECT_TRUE(HasBatchNorm(*std::make_shared<Normalised>()));
}

}  // namespace
}  // namespace rankwise
