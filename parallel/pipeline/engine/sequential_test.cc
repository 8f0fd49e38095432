#include "parallel/pipeline/engine/sequential.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <string>
#include <vector>

#include "parallel/comm/test_ranks.h"
#include "parallel/pipeline/engine/test_pipeline.h"

namespace rankwise {
namespace {

constexpr int kMicroBatches = 4, kMicroBatchSize = 2, kSteps = 3;

torch::nn::Sequential MakeLayers() {
  torch::manual_seed(5);
  return torch::nn::Sequential(torch::nn::Linear(6, 8), torch::nn::ReLU(),
                               torch::nn::Linear(8, 8), torch::nn::Tanh(),
                               torch::nn::Linear(8, 3));
}

at::Tensor Inputs() {
  return at::sin(at::arange(kMicroBatches * kMicroBatchSize * 6, at::kFloat))
      .view({-1, 6});
}

at::Tensor Targets() {
  return at::arange(kMicroBatches * kMicroBatchSize).remainder(3);
}

at::Tensor Loss(const at::Tensor& output, const at::Tensor& target) {
  return torch::nn::functional::cross_entropy(output, target);
}

// Computed in one process, with gradients accumulated in micro-batch order.
std::vector<double> ReferenceLosses() {
  torch::nn::Sequential layers = MakeLayers();
  torch::optim::SGD sgd(layers->parameters(), /*lr=*/0.5);
  std::vector<double> losses;
  for (int step = 0; step < kSteps; ++step) {
    at::Tensor sum = at::zeros({});
    for (int i = 0; i < kMicroBatches; ++i) {
      at::Tensor share = Loss(layers->forward(Inputs().chunk(kMicroBatches)[i]),
                              Targets().chunk(kMicroBatches)[i]) /
                         static_cast<double>(kMicroBatches);
      share.backward();
      sum += share.detach();
    }
    losses.push_back(sum.item<double>());
    sgd.step();
    sgd.zero_grad();
  }
  return losses;
}

class SequentialPipelineTest : public ::testing::TestWithParam<const char*> {};

TEST_P(SequentialPipelineTest, LosesAsOneProcessDoes) {
  // Ranks are threads, and the process has one generator: all layers are drawn
  // before they start.
  const std::vector<torch::nn::Sequential> layers = {MakeLayers(),
                                                     MakeLayers()};
  const std::vector<double> expected_losses = ReferenceLosses();
  OnRanks(2, [&](const Group& group, int rank) {
    auto pipeline = SequentialPipeline::Create(
        layers[static_cast<size_t>(rank)], Inputs().chunk(kMicroBatches)[0],
        group, {.schedule = GetParam(), .micro_batches = kMicroBatches});
    ASSERT_TRUE(pipeline.ok()) << pipeline.status();
    torch::optim::SGD sgd((*pipeline)->parameters(), /*lr=*/0.5);
    for (const double expected : expected_losses) {
      const at::Tensor loss = (*pipeline)->Step(Inputs(), Targets(), Loss);
      EXPECT_EQ(loss.item<float>(), static_cast<float>(expected));
      sgd.step();
      sgd.zero_grad();
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Schedules, SequentialPipelineTest,
                         ::testing::Values("gpipe", "1f1b",
                                           "interleaved_1f1b"));

TEST(SequentialPipeline, RefusesFewerLayersThanStages) {
  const auto pipeline = SequentialPipeline::Create(
      torch::nn::Sequential(torch::nn::Linear(2, 2)), at::ones({1, 2}),
      Group("pp", {0, 1}, 0, nullptr, nullptr));
  EXPECT_THAT(std::string(pipeline.status().message()),
              ::testing::HasSubstr("2"));
  EXPECT_EQ(pipeline.status().code(), absl::StatusCode::kInvalidArgument);
}

// Layers that the caller has frozen stay frozen.
TEST(SequentialPipeline, LeavesEachLayerItsTrainingMode) {
  torch::nn::BatchNorm1d frozen(2), trained(2);
  torch::nn::Sequential layers(torch::nn::Linear(2, 2), frozen, trained);
  frozen->eval();
  const auto pipeline = SequentialPipeline::Create(
      layers, at::ones({3, 2}), Group(), {.micro_batches = 2});
  ASSERT_TRUE(pipeline.ok()) << pipeline.status();
  EXPECT_FALSE(frozen->is_training());
  EXPECT_TRUE(trained->is_training());
  EXPECT_EQ(trained->num_batches_tracked.item<int64_t>(), 0);
}

TEST(SequentialPipeline, RefusesAnotherBatchSize) {
  auto pipeline = SequentialPipeline::Create(
      torch::nn::Sequential(torch::nn::Linear(2, 2)), at::ones({3, 2}), Group(),
      {.micro_batches = 2});
  ASSERT_TRUE(pipeline.ok()) << pipeline.status();
  EXPECT_THROW((*pipeline)->Step(at::ones({5, 2}), at::ones({5, 2}), Loss),
               c10::Error);
}

}  // namespace
}  // namespace rankwise
