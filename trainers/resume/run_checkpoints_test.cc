#include "trainers/resume/run_checkpoints.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "trainers/checkpoint/load_all_for_test.h"
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
    config_.data.batch_size = 12;
    config_.optimizer.name = "adam";
    config_.optimizer.learning_rate = 0.125;
    config_.flags.losses = {{"lr", "0.125"}, {"seed", "0"}};
    config_.checkpoint.dir =
        ::testing::TempDir() + "/" +
        ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(config_.checkpoint.dir);
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

  void Save(const Progress& progress) {
    RunCheckpoints checkpoints = Of(config_, worker_);
    ASSERT_TRUE(checkpoints.Open().ok());
    const auto saved = checkpoints.Save(progress);
    ASSERT_TRUE(saved.ok()) << saved.status();
  }

  // Resumes as a run with other settings, or another rank.
  absl::StatusOr<std::optional<Progress>> Resume(const TrainConfig& config,
                                                 const Worker& worker) {
    RunCheckpoints checkpoints = Of(config, worker);
    const absl::Status opened = checkpoints.Open();
    EXPECT_TRUE(opened.ok()) << opened;
    return checkpoints.Resume();
  }

  std::string Refusal(const TrainConfig& config, const Worker& worker) {
    const absl::Status status = Resume(config, worker).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    return std::string(status.message());
  }

  RunCheckpoints Of(const TrainConfig& config, const Worker& worker) {
    return RunCheckpoints(config, /*total_steps=*/100, worker, *model_,
                          *optimizer_, /*sharded=*/{}, engine_);
  }

  // Returns rank `rank` of `ranks`, for loading a checkpoint without the
  // others.
  static Worker RankOf(int rank, int ranks) {
    Worker worker;
    worker.env.rank = rank;
    worker.env.world_size = ranks;
    worker.layout = *LayOutRanks({{"dp", ranks}}, ranks);
    return worker;
  }

  // Saves a checkpoint as the first of two ranks would.
  void SaveAsTwoRanks() {
    CheckpointStore store(config_.checkpoint.dir, 3);
    Save({.step = 6, .epoch = 1, .position = 6});
    std::vector<std::string> warnings;
    Checkpoint checkpoint = **LoadAll(store, &warnings);
    checkpoint.metadata["config"] = R"({"lr":"0.125","seed":"0",)"
                                    R"("batch_size":"3","accumulate":"2",)"
                                    R"("data-parallel ranks":2,)"
                                    R"("steps of the cosine":0})";
    std::erase_if(checkpoint.tensors, [](const TensorBlock& block) {
      return block.name == "epoch_sums.0";
    });
    checkpoint.tensors.push_back(
        {"epoch_sums.0", at::tensor({1.5, 18.0, 0.5}, at::kDouble)});
    checkpoint.tensors.push_back(
        {"epoch_sums.1", at::tensor({2.5, 17.0, 0.75}, at::kDouble)});
    at::Generator other = at::detail::createCPUGenerator(77);
    checkpoint.tensors.push_back({"rng.1", other.get_state()});
    ASSERT_TRUE(store.Save(checkpoint).ok());
  }

  TrainConfig config_;
  Worker worker_;
  EngineState engine_;
  std::shared_ptr<Model> model_;
  std::unique_ptr<Optimizer> optimizer_;
};

TEST_F(ResumeTest, RestoringBringsBackModelOptimizerGeneratorAndProgress) {
  TrainOneStep();
  Save({.step = 17,
        .epoch = 2,
        .position = 5,
        .epoch_loss = 1.5,
        .epoch_examples = 20,
        .epoch_seconds = 0.5});
  TrainOneStep();
  const torch::Tensor expected = model_->parameters()[0].detach().clone();

  const auto restored = Resume(config_, worker_);
  ASSERT_TRUE(restored.ok()) << restored.status();
  ASSERT_TRUE(restored->has_value());
  EXPECT_EQ((*restored)->step, 17);
  EXPECT_EQ((*restored)->epoch, 2);
  EXPECT_EQ((*restored)->position, 5);
  EXPECT_EQ((*restored)->epoch_loss, 1.5);
  EXPECT_EQ((*restored)->epoch_examples, 20);
  TrainOneStep();  // the same random data, the same update
  EXPECT_TRUE(model_->parameters()[0].equal(expected));
}

TEST_F(ResumeTest, AnAsynchronousSaveHasTheStateAtItsStart) {
  config_.checkpoint.async = true;
  TrainOneStep();
  const torch::Tensor expected = model_->parameters()[0].detach().clone();
  {
    RunCheckpoints checkpoints = Of(config_, worker_);
    ASSERT_TRUE(checkpoints.Open().ok());
    const auto first = checkpoints.Save({.step = 1});
    ASSERT_TRUE(first.ok()) << first.status();
    EXPECT_FALSE(first->has_value()) << "nothing is complete yet";
    TrainOneStep();
    const auto second = checkpoints.Save({.step = 2});
    ASSERT_TRUE(second.ok() && second->has_value()) << second.status();
    EXPECT_EQ((*second)->step, 1);
    EXPECT_LE((*second)->blocked_seconds, (*second)->seconds);
    const auto finished = checkpoints.Finish();
    ASSERT_TRUE(finished.ok() && finished->has_value()) << finished.status();
    EXPECT_EQ((*finished)->step, 2);
    EXPECT_FALSE(checkpoints.Finish()->has_value());
    std::filesystem::remove((*finished)->path);
  }
  ASSERT_TRUE(Resume(config_, worker_).ok());
  EXPECT_TRUE(model_->parameters()[0].equal(expected));
}

TEST_F(ResumeTest, AFailedAsynchronousSaveIsReportedByTheNextSaveOrAtTheEnd) {
  config_.checkpoint.async = true;
  RunCheckpoints checkpoints = Of(config_, worker_);
  ASSERT_TRUE(checkpoints.Open().ok());
  // A folder takes the name of the file.
  const std::string in_the_way = "/step_00000001.safetensors";
  std::filesystem::create_directory(config_.checkpoint.dir + in_the_way);
  for (const bool at_the_end : {false, true}) {
    ASSERT_TRUE(checkpoints.Save({.step = 1}).ok());
    const auto failed =
        at_the_end ? checkpoints.Finish() : checkpoints.Save({.step = 2});
    EXPECT_FALSE(failed.ok());
    EXPECT_THAT(std::string(failed.status().message()), HasSubstr(in_the_way));
  }
}

TEST_F(ResumeTest, RestoringBringsBackTheLossScale) {
  optimizer_->UseGradScaler({.initial_scale = 8, .growth_interval = 2});
  for (int step = 0; step < 3; ++step) TrainOneStep();
  EXPECT_EQ(optimizer_->grad_scaler()->scale(), 16);
  Save({});
  for (int step = 0; step < 3; ++step) TrainOneStep();
  EXPECT_EQ(optimizer_->grad_scaler()->scale(), 64);
  const auto restored = Resume(config_, worker_);
  ASSERT_TRUE(restored.ok()) << restored.status();
  EXPECT_EQ(optimizer_->grad_scaler()->scale(), 16);
  TrainOneStep();  // second step since the scale rose
  EXPECT_EQ(optimizer_->grad_scaler()->scale(), 32);
}

TEST_F(ResumeTest, AnotherConfigurationIsRefusedByName) {
  Save({});
  TrainConfig other = config_;
  other.flags.losses["lr"] = "0.5";
  EXPECT_THAT(
      Refusal(other, worker_),
      AllOf(
          HasSubstr(
              "the checkpoint was made with --lr=0.125, this run has --lr=0.5"),
          HasSubstr("--checkpoint_dir")));
}

TEST_F(ResumeTest, ASettingOfOneTrainerAloneMustHaveItsDefault) {
  Save({});
  TrainConfig other = config_;
  other.flags.losses["comm_hook"] = "none";
  other.flags.loss_defaults["comm_hook"] = "none";
  EXPECT_TRUE(Resume(other, worker_).ok());
  other.flags.losses["comm_hook"] = "fp16";
  EXPECT_THAT(Refusal(other, worker_),
              HasSubstr("made with --comm_hook=none, this run has "
                        "--comm_hook=fp16"));
}

TEST_F(ResumeTest, AnotherNumberOfExamplesPerStepIsRefusedWithWhatFits) {
  Save({});
  EXPECT_THAT(
      Refusal(config_, RankOf(0, 2)),
      HasSubstr("made with 12 examples per step (--batch_size=12, "
                "--accumulate=1, data-parallel ranks=1), this run has 24 "
                "(--batch_size=12, --accumulate=1, data-parallel ranks=2); "
                "give --batch_size=6, or give another --checkpoint_dir"));
  TrainConfig small = config_;
  small.data.batch_size = 2;
  EXPECT_THAT(Refusal(small, RankOf(0, 3)),
              HasSubstr("give --batch_size=4 or --accumulate=2"));
  EXPECT_THAT(Refusal(small, RankOf(0, 5)),
              HasSubstr("give ranks, --batch_size and --accumulate whose "
                        "product is 12"));
}

TEST_F(ResumeTest, FewerRanksGoOnWithTheSumsOfAll) {
  SaveAsTwoRanks();
  const auto restored = Resume(config_, worker_);
  ASSERT_TRUE(restored.ok()) << restored.status();
  EXPECT_EQ((*restored)->step, 6);
  EXPECT_EQ((*restored)->position, 3) << "of two micro-batches each";
  EXPECT_EQ((*restored)->epoch_loss, 4);
  EXPECT_EQ((*restored)->epoch_examples, 35);
  EXPECT_EQ((*restored)->epoch_seconds, 0.5);
}

TEST_F(ResumeTest, MoreRanksGoOnWithGeneratorsOfTheirOwn) {
  SaveAsTwoRanks();
  config_.data.batch_size = 4;
  const std::vector<int64_t> examples = {18, 17, 0};
  const std::vector<double> seconds = {0.5, 0.75, 0.5};
  std::vector<torch::Tensor> drawn;
  for (size_t rank = 0; rank < 3; ++rank) {
    const auto restored = Resume(config_, RankOf(static_cast<int>(rank), 3));
    ASSERT_TRUE(restored.ok()) << restored.status();
    EXPECT_EQ((*restored)->epoch_examples, examples[rank]);
    EXPECT_EQ((*restored)->epoch_seconds, seconds[rank]);
    drawn.push_back(at::randn({4}));
  }
  at::manual_seed(77);
  EXPECT_TRUE(drawn[1].equal(at::randn({4})));
  EXPECT_FALSE(drawn[2].equal(drawn[0]));
  EXPECT_TRUE(Resume(config_, RankOf(2, 3)).ok());
  EXPECT_TRUE(drawn[2].equal(at::randn({4}))) << "the same each time";
}

// A GPU generator's state of 16 bytes is meaningless to a CPU generator.
TEST_F(ResumeTest, AnotherDevicesRandomStateIsReplacedBySeedAndStep) {
  const auto draw_after_resuming = [&](int64_t step, uint64_t seed) {
    Save({.step = step});
    CheckpointStore store(config_.checkpoint.dir, 3);
    std::vector<std::string> warnings;
    Checkpoint checkpoint = **LoadAll(store, &warnings);
    for (TensorBlock& block : checkpoint.tensors) {
      if (block.name == "rng.0") block.values = at::zeros({16}, at::kByte);
    }
    EXPECT_TRUE(store.Save(checkpoint).ok());
    config_.seed = seed;
    const auto resumed = Resume(config_, worker_);
    EXPECT_TRUE(resumed.ok()) << resumed.status();
    return at::randn({4});
  };
  const torch::Tensor drawn = draw_after_resuming(5, 1);
  EXPECT_TRUE(drawn.equal(draw_after_resuming(5, 1)));
  EXPECT_FALSE(drawn.equal(draw_after_resuming(6, 1)));
  EXPECT_FALSE(drawn.equal(draw_after_resuming(6, 2)));
}

TEST_F(ResumeTest, AParameterThatIsNotFiniteIsNamed) {
  RunCheckpoints checkpoints = Of(config_, worker_);
  ASSERT_TRUE(checkpoints.Open().ok());
  EXPECT_TRUE(checkpoints.CheckFinite(4).ok());
  EXPECT_FALSE(checkpoints.complete_step().has_value());
  ASSERT_TRUE(checkpoints.Save({.step = 4}).ok());
  EXPECT_EQ(checkpoints.complete_step(), 4);
  model_->named_parameters()["fc.bias"].mutable_data_ptr<float>()[0] =
      -std::numeric_limits<float>::infinity();
  const absl::Status status = checkpoints.CheckFinite(5);
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(status.message(),
            "the check of the parameters after step 5 failed on rank 0: "
            "fc.bias has values that are not finite");
}

// Earlier versions saved such checkpoints.
TEST_F(ResumeTest, ACheckpointThatIsNotFiniteIsPassedOver) {
  Save({.step = 4});
  model_->named_parameters()["fc.bias"].mutable_data_ptr<float>()[0] =
      std::nanf("");
  Save({.step = 5});
  const auto resumed = Resume(config_, worker_);
  ASSERT_TRUE(resumed.ok()) << resumed.status();
  EXPECT_EQ((*resumed)->step, 4);
  config_.on_nan = OnNan::kContinue;
  EXPECT_EQ((*Resume(config_, worker_))->step, 5);
}

TEST_F(ResumeTest, AFolderOfARunningJobIsRefused) {
  RunCheckpoints checkpoints = Of(config_, worker_);
  ASSERT_TRUE(checkpoints.Open().ok());
  RunCheckpoints others = Of(config_, worker_);
  const absl::Status refused = others.Open();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr(absl::StrCat("process ", getpid(), " on host ")));
}

// Adds the entries that two ranks of a model with buffers would save.
TEST_F(ResumeTest, EachRankContinuesWithItsOwnBuffers) {
  model_->register_buffer("mean", at::full({2}, 1.0));
  const torch::Tensor mean = model_->named_buffers()["mean"];
  SaveAsTwoRanks();
  CheckpointStore store(config_.checkpoint.dir, 3);
  std::vector<std::string> warnings;
  Checkpoint checkpoint = **LoadAll(store, &warnings);
  for (int rank = 0; rank < 2; ++rank) {
    checkpoint.tensors.push_back({absl::StrCat("rank_buffers.", rank, ".mean"),
                                  at::full({2}, 5.0 + rank)});
  }
  ASSERT_TRUE(store.Save(checkpoint).ok());

  engine_.own_buffers = true;
  config_.data.batch_size = 6;
  for (int rank = 0; rank < 2; ++rank) {
    const auto resumed = Resume(config_, RankOf(rank, 2));
    ASSERT_TRUE(resumed.ok()) << resumed.status();
    EXPECT_TRUE(mean.equal(at::full({2}, 5.0 + rank))) << mean;
  }
  config_.data.batch_size = 12;
  EXPECT_THAT(Refusal(config_, worker_),
              AllOf(HasSubstr("--broadcast_buffers=false"),
                    HasSubstr("the buffers of 2 data-parallel ranks, this run "
                              "has 1; resume with as many")));
  // Ranks that receive rank 0's buffers before each forward can use these.
  engine_.own_buffers = false;
  ASSERT_TRUE(Resume(config_, worker_).ok());
  EXPECT_TRUE(mean.equal(at::full({2}, 1.0))) << mean;
}

TEST_F(ResumeTest, APathNeedNotBeUtf8) {
  config_.flags.losses["data_dir"] = "/text\xff";
  Save({});
  EXPECT_TRUE(Resume(config_, worker_).ok());
}

TEST_F(ResumeTest, MissingTensorsAndStateAreNamed) {
  Save({});
  const auto reason_without = [&](const std::string& missing) {
    CheckpointStore store(config_.checkpoint.dir, 3);
    std::vector<std::string> warnings;
    Checkpoint rest = **LoadAll(store, &warnings);
    std::erase_if(rest.tensors, [&](const TensorBlock& block) {
      return block.name == missing;
    });
    EXPECT_TRUE(store.Save(rest).ok());
    return std::string(Resume(config_, worker_).status().message());
  };
  EXPECT_THAT(reason_without("model.fc.weight"),
              HasSubstr("no tensor model.fc.weight"));
  Save({});
  EXPECT_THAT(reason_without("rng.0"),
              HasSubstr("no state of data-parallel rank 0"));
}

TEST_F(ResumeTest, AfterARestartAnInterruptedFirstSaveIsNoCheckpoint) {
  CheckpointStore half(config_.checkpoint.dir, 3, /*shard=*/0,
                       /*num_shards=*/2);
  Checkpoint checkpoint;
  checkpoint.step = 3;
  ASSERT_TRUE(half.Save(checkpoint).ok());
  // Without a restart, the other half may have been lost: an error.
  EXPECT_TRUE(absl::IsDataLoss(Resume(config_, worker_).status()));
  RunCheckpoints checkpoints = Of(config_, worker_);
  ASSERT_TRUE(checkpoints.Open().ok());
  const auto restarted = checkpoints.Resume(/*after_restart=*/true);
  ASSERT_TRUE(restarted.ok()) << restarted.status();
  EXPECT_FALSE(restarted->has_value());

  ASSERT_TRUE(checkpoints.Save({.step = 2}).ok());
  const auto again = checkpoints.Resume(/*after_restart=*/true);
  ASSERT_TRUE(again.ok()) << again.status();
  ASSERT_TRUE(again->has_value());
  EXPECT_EQ((*again)->step, 2);
}

}  // namespace
}  // namespace rankwise
