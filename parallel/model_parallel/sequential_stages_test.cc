#include "parallel/model_parallel/sequential_stages.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <memory>

namespace rankwise {
namespace {

// tanh(x W), and in the last stage the mean squared error to zero.
class TanhStage : public Stage {
 public:
  TanhStage(at::Tensor weight, std::vector<at::Tensor> data, bool last)
      : weight_(std::move(weight)), data_(std::move(data)), last_(last) {}

  at::Tensor Forward(int micro_batch, const at::Tensor& input) override {
    const at::Tensor& x =
        input.defined() ? input : data_[static_cast<size_t>(micro_batch)];
    at::Tensor y = at::tanh(x.matmul(weight_));
    return last_ ? at::mse_loss(y, at::zeros_like(y)) : y;
  }
  std::vector<int64_t> InputShape(int) const override { return {}; }
  std::vector<int64_t> OutputShape(int) const override { return {}; }
  std::vector<at::Tensor> Parameters() const override { return {weight_}; }

 private:
  at::Tensor weight_;
  const std::vector<at::Tensor> data_;
  const bool last_;
};

class SequentialStagesTest : public ::testing::Test {
 protected:
  static constexpr int kMicroBatches = 3;

  SequentialStagesTest() {
    for (int i = 0; i < kMicroBatches; ++i) data_.push_back(at::randn({4, 5}));
    for (int i = 0; i < 3; ++i) {
      weights_.push_back(at::randn({5, 5}).requires_grad_());
      stages_.push_back(
          std::make_unique<TanhStage>(weights_.back(), data_, i == 2));
      pointers_.push_back(stages_.back().get());
    }
  }

  // One graph through all stages, as on one device.
  at::Tensor WholeLoss() {
    at::Tensor sum;
    for (int i = 0; i < kMicroBatches; ++i) {
      at::Tensor x;
      for (auto& stage : stages_) x = stage->Forward(i, x);
      x.backward();
      sum = sum.defined() ? sum + x.detach() : x.detach();
    }
    return sum;
  }

  std::vector<at::Tensor> data_, weights_;
  std::vector<std::unique_ptr<TanhStage>> stages_;
  std::vector<Stage*> pointers_;
};

TEST_F(SequentialStagesTest, LossAndGradientsEqualOneGraphs) {
  const at::Tensor expected_loss = WholeLoss();
  std::vector<at::Tensor> expected;
  for (at::Tensor& weight : weights_) {
    expected.push_back(weight.grad().clone());
    weight.mutable_grad().reset();
  }
  SequentialStages sequential(pointers_, {3, c10::Device(at::kCPU)});
  const SequentialStepInFlight step = sequential.Run(kMicroBatches);
  EXPECT_TRUE(step.loss().equal(expected_loss));
  for (size_t i = 0; i < weights_.size(); ++i)
    EXPECT_TRUE(weights_[i].grad().equal(expected[i])) << i;
}

TEST_F(SequentialStagesTest, StagesTakeTurnsAndEveryCopyIsCounted) {
  SequentialStages sequential(pointers_, {3, c10::Device(at::kCPU)});
  const SequentialStep step =
      sequential.Run(kMicroBatches).Read(sequential.AnchorClocks());
  ASSERT_EQ(step.timeline.ranks.size(), 3u);
  double busy = 0;
  for (const auto& spans : step.timeline.ranks) {
    EXPECT_EQ(spans.size(), 2u * kMicroBatches);
    for (const Span& span : spans)
      busy += span.end_seconds - span.start_seconds;
  }
  // No two stages at a time.
  EXPECT_LE(busy, step.end_seconds - step.start_seconds);
  ASSERT_EQ(step.boundaries.size(), 2u);
  for (const BoundaryTraffic& boundary : step.boundaries) {
    // A [4, 5] activation and its gradient per micro-batch.
    EXPECT_EQ(boundary.bytes, 2 * kMicroBatches * 4 * 5 * 4);
    EXPECT_GT(boundary.seconds, 0);
  }
}

TEST_F(SequentialStagesTest, ForwardAloneLeavesNoGradients) {
  SequentialStages sequential(pointers_, {3, c10::Device(at::kCPU)});
  sequential.RunForward(kMicroBatches);
  for (const at::Tensor& weight : weights_)
    EXPECT_FALSE(weight.grad().defined());
}

}  // namespace
}  // namespace rankwise
