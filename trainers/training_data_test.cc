#include "trainers/training_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>

namespace rankwise {
namespace {

using ::testing::HasSubstr;

TrainConfig SmallConfig() {
  TrainConfig config;
  config.data.dataset = "synthetic";
  config.data.train_size = 100;
  config.data.test_size = 33;
  config.data.batch_size = 16;
  return config;
}

Worker RankOf(int rank, int world_size) {
  Worker worker;
  worker.env.rank = rank;
  worker.env.world_size = world_size;
  return worker;
}

int64_t CountTestExamples(const TrainConfig& config, const Worker& worker) {
  auto data = OpenTrainingData(config, **FindModel("simple_cnn"), worker);
  EXPECT_TRUE(data.ok()) << data.status();
  data->test_loader->StartEpoch(0);
  int64_t examples = 0;
  while (true) {
    auto batch = data->test_loader->Next();
    EXPECT_TRUE(batch.ok()) << batch.status();
    if (!batch.ok() || !batch->has_value()) return examples;
    examples += (*batch)->target.size(0);
  }
}

TEST(TrainingDataTest, TrainingIsPaddedAndEvaluationExact) {
  const TrainConfig config = SmallConfig();
  auto data = OpenTrainingData(config, **FindModel("simple_cnn"), RankOf(2, 3));
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->train_loader->examples_per_epoch(),
            34);  // 100 padded to 102, over 3 ranks
  int64_t total = 0;
  for (int rank = 0; rank < 4; ++rank)
    total += CountTestExamples(config, RankOf(rank, 4));
  EXPECT_EQ(total, 33);
}

TEST(TrainingDataTest, NoTestSetWithoutEvaluation) {
  TrainConfig config = SmallConfig();
  config.evaluate = false;
  auto data = OpenTrainingData(config, **FindModel("simple_cnn"), RankOf(0, 1));
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->test, nullptr);
}

TEST(TrainingDataTest, DatasetMustFitTheModel) {
  const absl::Status status =
      OpenTrainingData(SmallConfig(), **FindModel("linear"), RankOf(0, 1))
          .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(
      std::string(status.message()),
      HasSubstr("--dataset=synthetic has class labels and examples of shape "
                "[3, 32, 32]; --model=linear wants "
                "regression targets and shape [10]; try --dataset=linear"));
}

TEST(TrainingDataTest, AnEpochWithoutABatchIsRefused) {
  TrainConfig config = SmallConfig();
  config.data.train_size = 2;
  config.data.drop_last = true;
  const absl::Status status =
      OpenTrainingData(config, **FindModel("simple_cnn"), RankOf(0, 3))
          .status();
  EXPECT_THAT(
      std::string(status.message()),
      HasSubstr("an epoch has no batch: 2 training examples over 3 ranks"));
}

}  // namespace
}  // namespace rankwise
