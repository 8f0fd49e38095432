#include "trainers/model.h"

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

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> ParameterNames(const torch::nn::Module& model) {
  std::vector<std::string> names;
  for (const auto& entry : model.named_parameters())
    names.push_back(entry.key());
  return names;
}

TEST(ModelTest, UnknownNameListsTheKnownOnes) {
  const absl::Status status = FindModel("resnet").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(
      std::string(status.message()),
      HasSubstr("--model=resnet: no such model; known: simple_cnn, linear"));
}

TEST(ModelTest, SimpleCnnHasPythonsNamesAndSizes) {
  auto model = (*FindModel("simple_cnn"))->build();
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
  auto first = (*FindModel("linear"))->build();
  at::manual_seed(7);
  auto same = (*FindModel("linear"))->build();
  auto other = (*FindModel("linear"))->build();
  EXPECT_TRUE(first->parameters()[0].equal(same->parameters()[0]));
  EXPECT_FALSE(first->parameters()[0].equal(other->parameters()[0]));
}

TEST(ModelTest, ChannelsLastChangesTheLayoutAndNotTheOutput) {
  at::manual_seed(0);
  auto model = (*FindModel("simple_cnn"))->build();
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

TEST(ModelTest, FindsBatchNorm) {
  EXPECT_FALSE(HasBatchNorm(*(*FindModel("simple_cnn"))->build()));
  struct Normalised : torch::nn::Module {
    Normalised() { register_module("norm", torch::nn::BatchNorm2d(3)); }
  };
  EXPECT_TRUE(HasBatchNorm(*std::make_shared<Normalised>()));
}

}  // namespace
}  // namespace rankwise
