#include "trainers/loop/objective.h"

#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "trainers/loop/config.h"

namespace rankwise {
namespace {

Batch RandomBatch(int64_t examples) {
  return {at::randn({examples, 3, 32, 32}),
          at::randint(0, 10, {examples}, at::kLong)};
}

class ObjectiveTest : public ::testing::Test {
 protected:
  std::shared_ptr<Model> model_ =
      std::make_shared<Model>(*MakeModelSpec({.name = "simple_cnn"}));
  Objective objective_{model_, LossKind::kCrossEntropy, Precision::kFp32,
                       at::kCPU};
};

TEST_F(ObjectiveTest, SharesOfUnevenMicroBatchesAddUpToTheWholeBatch) {
  const Batch whole = RandomBatch(7);
  const std::vector<Batch> parts = {
      {whole.data.slice(0, 0, 4), whole.target.slice(0, 0, 4)},
      {whole.data.slice(0, 4, 7), whole.target.slice(0, 4, 7)}};
  EXPECT_EQ(CountExamples(parts), 7);
  objective_.Loss(whole).backward();
  const torch::Tensor expected = model_->parameters()[4].grad().clone();
  model_->zero_grad();
  double sum = 0;
  for (const Batch& part : parts) {
    torch::Tensor share = objective_.LossShare(part, parts);
    share.backward();
    sum += share.item<double>();
  }
  EXPECT_NEAR(sum, objective_.Loss(whole).item<double>(), 1e-5);
  EXPECT_LT(
      (model_->parameters()[4].grad() - expected).abs().max().item<double>(),
      1e-6);
}

TEST_F(ObjectiveTest, OneMicroBatchIsTheLossBitForBit) {
  const std::vector<Batch> only = {RandomBatch(3)};
  EXPECT_TRUE(
      objective_.LossShare(only[0], only).equal(objective_.Loss(only[0])));
}

TEST_F(ObjectiveTest, Bf16ComputesInBf16AndLeavesTheWeightsAlone) {
  const Objective half(model_, LossKind::kCrossEntropy, Precision::kBf16,
                       at::kCPU);
  const Batch batch = RandomBatch(4);
  EXPECT_EQ(half.Output(batch.data).scalar_type(), at::kBFloat16);
  EXPECT_EQ(objective_.Output(batch.data).scalar_type(), at::kFloat);
  half.Loss(batch).backward();
  EXPECT_EQ(model_->parameters()[0].grad().scalar_type(), at::kFloat);
  EXPECT_NEAR(half.Loss(batch).item<double>(),
              objective_.Loss(batch).item<double>(), 0.05);
}

}  // namespace
}  // namespace rankwise
