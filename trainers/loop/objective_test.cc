#include "trainers/loop/objective.h"

#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <ATen/record_function.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
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

// Counts the weights cast on this thread during its lifetime.
class CastCount {
 public:
  CastCount() { count = 0; }
  ~CastCount() { at::removeCallback(handle_); }
  CastCount(const CastCount&) = delete;
  CastCount& operator=(const CastCount&) = delete;

  int64_t value() const { return count; }

 private:
  static std::unique_ptr<at::ObserverContext> See(
      const at::RecordFunction& function) {
    if (std::string(function.name()) != "aten::_to_copy") return nullptr;
    const torch::Tensor& from = function.inputs()[0].toTensor();
    if (from.requires_grad() && from.is_leaf()) ++count;
    return nullptr;
  }

  static thread_local int64_t count;
  const at::CallbackHandle handle_ = at::addThreadLocalCallback(
      at::RecordFunctionCallback(See).needsInputs(true).scopes(
          {at::RecordScope::FUNCTION}));
};

thread_local int64_t CastCount::count = 0;

class MicroBatchesInBf16Test : public ::testing::Test {
 protected:
  MicroBatchesInBf16Test() {
    for (int i = 0; i < 3; ++i) {
      const torch::Tensor tokens = at::randint(0, 256, {2, 9}, at::kLong);
      parts_.push_back({tokens.slice(1, 0, 8), tokens.slice(1, 1, 9)});
    }
  }

  // Returns the losses and gradients of parts_, in order.
  template <typename LossOfPart>
  std::vector<torch::Tensor> Train(const LossOfPart& loss_of) {
    model_->zero_grad();
    std::vector<torch::Tensor> results;
    for (const Batch& part : parts_) {
      const torch::Tensor loss = loss_of(part);
      loss.backward();
      results.push_back(loss.detach());
    }
    for (const torch::Tensor& parameter : model_->parameters())
      results.push_back(parameter.grad().clone());
    return results;
  }
  std::vector<torch::Tensor> TrainCastingOnce() {
    return Train([&](auto& part) { return half_.LossShare(part, parts_); });
  }
  std::vector<torch::Tensor> TrainCastingEachTime() {
    return Train([&](auto& part) {
      return ShareOfMean(half_.Loss(part), part, parts_);
    });
  }

  std::vector<Batch> parts_;
  std::shared_ptr<Model> model_ = std::make_shared<Model>(*MakeModelSpec(
      {.name = "gpt", .depth = 2, .width = 64, .sequence_length = 8}));
  const Objective half_{model_, LossKind::kCrossEntropy, Precision::kBf16,
                        at::kCPU};
};

TEST_F(MicroBatchesInBf16Test, CastWeightsOnce) {
  int64_t once = 0, each_time = 0;
  {
    const CastCount casts;
    TrainCastingOnce();
    once = casts.value();
  }
  {
    const CastCount casts;
    TrainCastingEachTime();
    each_time = casts.value();
  }
  EXPECT_GT(once, 0);
  EXPECT_EQ(each_time, 3 * once);
}

TEST_F(MicroBatchesInBf16Test, GiveTheSameBitsAsWeightsCastEachTime) {
  // The second step changes the weights, so it must not use earlier casts.
  for (int step = 0; step < 2; ++step) {
    const std::vector<torch::Tensor> once = TrainCastingOnce();
    const std::vector<torch::Tensor> each_time = TrainCastingEachTime();
    ASSERT_EQ(once.size(), each_time.size());
    for (size_t i = 0; i < once.size(); ++i)
      EXPECT_TRUE(once[i].equal(each_time[i])) << i;
    const at::NoGradGuard no_grad;
    for (torch::Tensor parameter : model_->parameters()) parameter.mul_(1.25);
  }
}

TEST_F(MicroBatchesInBf16Test, DoNotUseCastsOfAStepThatWasNotFinished) {
  const torch::Tensor before = half_.LossShare(parts_[0], parts_).detach();
  {
    const at::NoGradGuard no_grad;
    for (torch::Tensor parameter : model_->parameters()) parameter.mul_(1.25);
  }
  const torch::Tensor after = half_.LossShare(parts_[0], parts_).detach();
  half_.LossShare(parts_[2], parts_);  // the last one drops the casts
  EXPECT_FALSE(after.equal(before));
  EXPECT_TRUE(
      after.equal(ShareOfMean(half_.Loss(parts_[0]), parts_[0], parts_)));
}

// Returns the same logits for every image, in which class 3 wins.
class AlwaysThree : public Model {
 public:
  torch::Tensor Forward(const torch::Tensor& input) override {
    EXPECT_FALSE(is_training());
    torch::Tensor logits = input.new_zeros({input.size(0), 10});
    logits.select(1, 3).fill_(1.0);
    return logits;
  }
};

TEST(EvaluateTest, CountsEveryTestExampleOnce) {
  TrainConfig config;
  config.data.dataset = "synthetic";
  config.data.train_size = 10;
  config.data.test_size = 101;
  config.data.batch_size = 16;
  Worker worker;
  auto data =
      OpenTrainingData(config, *MakeModelSpec({.name = "simple_cnn"}), worker);
  ASSERT_TRUE(data.ok()) << data.status();
  std::vector<int64_t> all(101);
  for (int64_t i = 0; i < 101; ++i) all[i] = i;
  const int64_t threes =
      data->test.dataset->Gather(all).target.eq(3).sum().item<int64_t>();

  const Objective objective(std::make_shared<AlwaysThree>(),
                            LossKind::kCrossEntropy, Precision::kFp32,
                            at::kCPU);
  auto result = Evaluate(objective, *data, worker, /*epoch=*/4);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(objective.model().is_training());
  EXPECT_EQ(result->epoch, 4);
  EXPECT_EQ(result->total, 101);
  EXPECT_EQ(result->correct, threes);
  // Cross-entropy of one logit at 1 and nine at 0.
  const double normaliser = std::log(std::exp(1.0) + 9.0);
  const double expected = (static_cast<double>(threes) * (normaliser - 1.0) +
                           static_cast<double>(101 - threes) * normaliser) /
                          101;
  EXPECT_NEAR(result->mean_loss, expected, 1e-5);
}

// Returns the same logits for every token, in which token 3 wins.
class AlwaysTokenThree : public Model {
 public:
  torch::Tensor Forward(const torch::Tensor& input) override {
    torch::Tensor logits =
        at::zeros({input.size(0), input.size(1), 256}, at::kFloat);
    logits.select(2, 3).fill_(1.0);
    return logits;
  }
};

TEST(EvaluateTest, CountsEveryTokenOfALanguageModel) {
  TrainConfig config;
  config.data.dataset = "tokens";
  config.data.train_size = 10;
  config.data.test_size = 37;
  config.data.batch_size = 16;
  Worker worker;
  auto data = OpenTrainingData(config, *MakeModelSpec({.name = "gpt"}), worker);
  ASSERT_TRUE(data.ok()) << data.status();
  std::vector<int64_t> all(37);
  for (int64_t i = 0; i < 37; ++i) all[i] = i;
  const int64_t threes =
      data->test.dataset->Gather(all).target.eq(3).sum().item<int64_t>();

  const Objective objective(std::make_shared<AlwaysTokenThree>(),
                            LossKind::kCrossEntropy, Precision::kFp32,
                            at::kCPU);
  auto result = Evaluate(objective, *data, worker, /*epoch=*/1);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->total, 37 * 128);
  EXPECT_GT(threes, 0);
  EXPECT_EQ(result->correct, threes);
  const double share = static_cast<double>(threes) / (37 * 128);
  EXPECT_NEAR(result->mean_loss, std::log(std::exp(1.0) + 255.0) - share, 1e-5);
}

}  // namespace
}  // namespace rankwise
