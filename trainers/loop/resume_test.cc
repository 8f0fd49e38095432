#include "trainers/loop/resume.h"

#include <ATen/Context.h>
#include <ATen/ops/randn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "trainers/loop/optimizer.h"
#include "trainers/models/model.h"

namespace rankwise {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class ResumeTest : public ::testing::Test {
 protected:
  ResumeTest() {
    config_.data.dataset = "linear";
    config_.optimizer.name = "adam";
    config_.optimizer.learning_rate = 0.125;
    config_.flags.losses = {{"lr", "0.125"}, {"seed", "0"}};
    at::manual_seed(1);
    model_ = std::make_shared<Model>(*MakeModelSpec({.name = "linear"}));
    optimizer_ = std::move(
        *MakeOptimizer(TrainableParameters(*model_), config_.optimizer));
  }

  void TrainOneStep() {
    optimizer_->ZeroGrad();
    model_->Forward(at::randn({4, 10})).square().mean().backward();
    optimizer_->Step(0.125);
  }

  RunCheckpoints Of(const TrainConfig& config, const Worker& worker) {
    return RunCheckpoints(config, /*total_steps=*/100, worker, *model_,
                          *optimizer_);
  }

  TrainConfig config_;
  Worker worker_;
  std::shared_ptr<Model> model_;
  std::unique_ptr<Optimizer> optimizer_;
};

TEST_F(ResumeTest, RestoringBringsBackModelOptimizerGeneratorAndProgress) {
  TrainOneStep();
  const Progress before{.step = 17,
                        .epoch = 2,
                        .position = 5,
                        .epoch_loss = 1.5,
                        .epoch_examples = 20,
                        .epoch_seconds = 0.5};
  auto checkpoint = Of(config_, worker_).Capture(before);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  // A checkpoint on disk is a copy; here the tensors are still the live ones.
  for (auto& [name, tensor] : checkpoint->tensors) tensor = tensor.clone();
  TrainOneStep();
  const torch::Tensor expected = model_->parameters()[0].detach().clone();

  auto restored = Of(config_, worker_).Restore(*checkpoint);
  ASSERT_TRUE(restored.ok()) << restored.status();
  EXPECT_EQ(restored->step, 17);
  EXPECT_EQ(restored->epoch, 2);
  EXPECT_EQ(restored->position, 5);
  EXPECT_EQ(restored->epoch_loss, 1.5);
  EXPECT_EQ(restored->epoch_examples, 20);
  TrainOneStep();  // the same random data, the same update
  EXPECT_TRUE(model_->parameters()[0].equal(expected));
}

TEST_F(ResumeTest, RestoringBringsBackTheLossScale) {
  optimizer_->UseGradScaler({.initial_scale = 8, .growth_interval = 2});
  for (int step = 0; step < 3; ++step) TrainOneStep();
  EXPECT_EQ(optimizer_->grad_scaler()->scale(), 16);
  auto checkpoint = Of(config_, worker_).Capture({});
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  for (auto& [name, tensor] : checkpoint->tensors) tensor = tensor.clone();
  for (int step = 0; step < 3; ++step) TrainOneStep();
  EXPECT_EQ(optimizer_->grad_scaler()->scale(), 64);
  auto restored = Of(config_, worker_).Restore(*checkpoint);
  ASSERT_TRUE(restored.ok()) << restored.status();
  EXPECT_EQ(optimizer_->grad_scaler()->scale(), 16);
  TrainOneStep();  // the second since it rose
  EXPECT_EQ(optimizer_->grad_scaler()->scale(), 32);
}

TEST_F(ResumeTest, AnotherConfigurationIsRefusedByName) {
  auto checkpoint = Of(config_, worker_).Capture({});
  ASSERT_TRUE(checkpoint.ok());
  TrainConfig other = config_;
  other.flags.losses["lr"] = "0.5";
  const absl::Status status = Of(other, worker_).Restore(*checkpoint).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(
      std::string(status.message()),
      AllOf(
          HasSubstr(
              "the checkpoint was made with --lr=0.125, this run has --lr=0.5"),
          HasSubstr("--checkpoint_dir")));

  Worker larger;
  larger.env.world_size = 2;
  larger.layout = *LayOutRanks({{"dp", 2}}, 2);
  EXPECT_THAT(
      std::string(Of(config_, larger).Restore(*checkpoint).status().message()),
      HasSubstr("data-parallel ranks=1, this run has data-parallel ranks=2 "
                "(--nproc)"));
}

TEST_F(ResumeTest, APathNeedNotBeUtf8) {
  config_.flags.losses["data_dir"] = "/text\xff";
  auto checkpoint = Of(config_, worker_).Capture({});
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_TRUE(Of(config_, worker_).Restore(*checkpoint).ok());
}

TEST_F(ResumeTest, MissingTensorsAndStateAreNamed) {
  auto checkpoint = Of(config_, worker_).Capture({});
  ASSERT_TRUE(checkpoint.ok());
  Checkpoint no_weight = *checkpoint;
  no_weight.tensors.erase(no_weight.tensors.begin());
  EXPECT_THAT(
      std::string(Of(config_, worker_).Restore(no_weight).status().message()),
      HasSubstr("no tensor model.fc.weight"));
  Checkpoint no_rank = *checkpoint;
  no_rank.tensors.pop_back();
  EXPECT_THAT(
      std::string(Of(config_, worker_).Restore(no_rank).status().message()),
      HasSubstr("no state of data-parallel rank 0"));
  Checkpoint foreign = *checkpoint;
  foreign.metadata.clear();
  EXPECT_THAT(
      std::string(Of(config_, worker_).Restore(foreign).status().message()),
      HasSubstr("configuration is not JSON"));
}

}  // namespace
}  // namespace rankwise
