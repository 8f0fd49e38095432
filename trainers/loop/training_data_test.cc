#include "trainers/loop/training_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

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
  worker.layout = *LayOutRanks({{"dp", world_size}}, world_size);
  return worker;
}

int64_t CountTestExamples(const TrainConfig& config, const Worker& worker) {
  auto data =
      OpenTrainingData(config, *MakeModelSpec({.name = "simple_cnn"}), worker);
  EXPECT_TRUE(data.ok()) << data.status();
  data->test.loader->StartEpoch(0);
  int64_t examples = 0;
  while (true) {
    auto batch = data->test.loader->Next();
    EXPECT_TRUE(batch.ok()) << batch.status();
    if (!batch.ok() || !batch->has_value()) return examples;
    examples += (*batch)->target.size(0);
  }
}

TEST(TrainingDataTest, TrainingIsPaddedAndEvaluationExact) {
  const TrainConfig config = SmallConfig();
  auto data = OpenTrainingData(config, *MakeModelSpec({.name = "simple_cnn"}),
                               RankOf(2, 3));
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->train.sampler->size(),
            34);  // 100 padded to 102, over 3 ranks
  int64_t total = 0;
  for (int rank = 0; rank < 4; ++rank)
    total += CountTestExamples(config, RankOf(rank, 4));
  EXPECT_EQ(total, 33);
}

TEST(TrainingDataTest, AStageInTheMiddleCountsWithoutReading) {
  const TrainConfig config = SmallConfig();
  const ModelSpec model = *MakeModelSpec({.name = "simple_cnn"});
  auto read = OpenTrainingData(config, model, RankOf(0, 1));
  auto counted =
      OpenTrainingData(config, model, RankOf(0, 1), /*reads_data=*/false);
  ASSERT_TRUE(counted.ok()) << counted.status();
  EXPECT_EQ(counted->train.loader->batches_per_epoch(),
            read->train.loader->batches_per_epoch());
  read->train.loader->StartEpoch(1);
  counted->train.loader->StartEpoch(1);
  for (int64_t i = 0; i < read->train.loader->batches_per_epoch(); ++i) {
    const auto batch = read->train.loader->Next();
    const auto empty = counted->train.loader->Next();
    ASSERT_TRUE(empty.ok()) << empty.status();
    EXPECT_EQ((*empty)->target.size(0), (*batch)->target.size(0));
    EXPECT_EQ((*empty)->data.sizes().slice(1), at::IntArrayRef({1}));
  }
}

TEST(TrainingDataTest, TheStagesOfAReplicaSeeTheSameExamples) {
  Worker stage = RankOf(3, 4);
  stage.layout = *LayOutRanks({{"pp", 2}, {"dp", 2}}, 4);
  EXPECT_EQ(stage.dp_rank(), 1);
  TrainConfig config = SmallConfig();
  auto data =
      OpenTrainingData(config, *MakeModelSpec({.name = "simple_cnn"}), stage);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->train.sampler->size(), 50);  // half of 100
}

TEST(TrainingDataTest, NoTestSetWithoutEvaluation) {
  TrainConfig config = SmallConfig();
  config.evaluate = false;
  auto data = OpenTrainingData(config, *MakeModelSpec({.name = "simple_cnn"}),
                               RankOf(0, 1));
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->test.loader, nullptr);
}

TEST(TrainingDataTest, DatasetMustFitTheModel) {
  const absl::Status status =
      OpenTrainingData(SmallConfig(), *MakeModelSpec({.name = "linear"}),
                       RankOf(0, 1))
          .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(
      std::string(status.message()),
      HasSubstr("--dataset=synthetic has class labels and examples of shape "
                "[3, 32, 32]; --model=linear takes "
                "regression targets and examples of shape [10]; try "
                "--dataset=linear"));
}

TEST(TrainingDataTest, SequencesAreAsLongAsTheModelTakesThem) {
  TrainConfig config = SmallConfig();
  config.data.dataset = "tokens";
  ModelConfig gpt;
  gpt.name = "gpt";
  gpt.sequence_length = 24;
  auto data = OpenTrainingData(config, *MakeModelSpec(gpt), RankOf(0, 1));
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->train.dataset->facts().example_shape,
            std::vector<int64_t>{24});
}

TEST(TrainingDataTest, TheModelMustKnowAllTokens) {
  TrainConfig config = SmallConfig();
  config.data.dataset = "tokens";
  ModelSpec model = *MakeModelSpec({.name = "gpt"});
  model.num_classes = 255;
  EXPECT_EQ(OpenTrainingData(config, model, RankOf(0, 1)).status().message(),
            "--dataset=tokens has 256 classes or token values; --model=gpt "
            "has only 255");
}

ModelSpec MlpOfVectors() {
  ModelConfig mlp;
  mlp.name = "mlp";
  mlp.input_width = 128;
  mlp.classes = 300;
  return *MakeModelSpec(mlp);
}

TEST(TrainingDataTest, VectorsAreAsWideAsTheModelTakesThem) {
  const auto data =
      OpenTrainingData(SmallConfig(), MlpOfVectors(), RankOf(0, 1));
  ASSERT_TRUE(data.ok()) << data.status();
  const DatasetFacts& facts = data->train.dataset->facts();
  EXPECT_EQ(facts.example_shape, std::vector<int64_t>{128});
  EXPECT_EQ(facts.num_classes, 300);
}

TEST(TrainingDataTest, TokensAreNoVectors) {
  TrainConfig config = SmallConfig();
  config.data.dataset = "tokens";
  EXPECT_EQ(
      OpenTrainingData(config, MlpOfVectors(), RankOf(0, 1)).status().message(),
      "--dataset=tokens has tokens to predict and examples of shape [128]; "
      "--model=mlp takes class labels and examples of shape [128]; try "
      "--dataset=synthetic");
}

TEST(TrainingDataTest, ImagesAreNoSequences) {
  const absl::Status status =
      OpenTrainingData(SmallConfig(), *MakeModelSpec({.name = "gpt"}),
                       RankOf(0, 1))
          .status();
  EXPECT_THAT(
      std::string(status.message()),
      HasSubstr("--model=gpt takes tokens to predict and examples of shape "
                "[128]; try --dataset=tokens"));
}

TEST(TrainingDataTest, AnEpochWithoutABatchIsRefused) {
  TrainConfig config = SmallConfig();
  config.data.train_size = 2;
  config.data.drop_last = true;
  const absl::Status status =
      OpenTrainingData(config, *MakeModelSpec({.name = "simple_cnn"}),
                       RankOf(0, 3))
          .status();
  EXPECT_THAT(
      std::string(status.message()),
      HasSubstr("an epoch has no batch: 2 training examples over 3 ranks"));
}

}  // namespace
}  // namespace rankwise
