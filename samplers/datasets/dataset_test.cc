#include "samplers/datasets/dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "samplers/datasets/file_datasets.h"

namespace rankwise {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(OpenDatasetTest, TheDefaultIsTheSyntheticSetInCifar10sSize) {
  auto train = OpenDataset({}, Split::kTrain);
  ASSERT_TRUE(train.ok()) << train.status();
  EXPECT_EQ((*train)->facts().name, "synthetic");
  EXPECT_EQ((*train)->size(), 50000);
  auto test = OpenDataset({}, Split::kTest);
  ASSERT_TRUE(test.ok()) << test.status();
  EXPECT_EQ((*test)->size(), 10000);
}

TEST(OpenDatasetTest, SizesAreThoseOfTheConfig) {
  const DatasetConfig config = {
      .name = "linear", .train_size = 20, .test_size = 6};
  EXPECT_EQ((*OpenDataset(config, Split::kTrain))->size(), 20);
  EXPECT_EQ((*OpenDataset(config, Split::kTest))->size(), 6);
  EXPECT_EQ((*OpenDataset(config, Split::kTest))->facts().name, "linear");
}

TEST(OpenDatasetTest, SequencesAreAsLongAsAskedFor) {
  const DatasetConfig config = {.name = "tokens", .sequence_length = 24};
  EXPECT_THAT((*OpenDataset(config, Split::kTrain))->facts().example_shape,
              ElementsAre(24));
}

TEST(OpenDatasetTest, KnowsItsNames) {
  EXPECT_THAT(DatasetNames(), ElementsAre("synthetic", "cifar10", "linear",
                                          "regression", "tokens", "text"));
}

TEST(OpenDatasetTest, AllFileDatasetsButTokensNeedAPath) {
  const std::vector<std::string> names = DatasetNames();
  EXPECT_EQ(std::count_if(names.begin(), names.end(), ReadsFiles),
            std::ssize(kFileDatasets));
  for (const std::string& name : names) {
    const DatasetConfig config = {.name = name};
    EXPECT_EQ(OpenDataset(config, Split::kTrain).ok(),
              name == "tokens" || !ReadsFiles(name))
        << name;
  }
}

TEST(OpenDatasetTest, RefusesAnUnknownName) {
  const absl::Status status =
      OpenDataset({.name = "imagenet"}, Split::kTrain).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("no dataset \"imagenet\""),
                    HasSubstr("synthetic, cifar10, linear, regression")));
}

TEST(OpenDatasetTest, PassesOnWhatTheDatasetSays) {
  EXPECT_THAT(
      std::string(
          OpenDataset({.name = "cifar10"}, Split::kTrain).status().message()),
      HasSubstr("--data_dir"));
  EXPECT_THAT(
      std::string(
          OpenDataset({.train_size = -5}, Split::kTrain).status().message()),
      HasSubstr("-5 examples"));
}

}  // namespace
}  // namespace rankwise
