#include "trainers/checkpoint/checkpoint_folder.h"

#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "torch/types.h"
#include "trainers/checkpoint/safetensors.h"

namespace rankwise {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(CheckpointNameTest, IsReadAsItIsWritten) {
  EXPECT_EQ(FormatCheckpointName({20, 0, 1}), "step_00000020.safetensors");
  EXPECT_EQ(FormatCheckpointName({20, 1, 12}),
            "step_00000020.shard_1_of_12.safetensors");
  for (const CheckpointName& name :
       {CheckpointName{0, 0, 1}, CheckpointName{1'234'567'890, 0, 2},
        CheckpointName{20, 11, 12}}) {
    const auto read = ParseCheckpointName(FormatCheckpointName(name));
    ASSERT_TRUE(read.has_value());
    EXPECT_EQ(read->step, name.step);
    EXPECT_EQ(read->shard, name.shard);
    EXPECT_EQ(read->num_shards, name.num_shards);
  }
}

TEST(CheckpointNameTest, OtherNamesAreNoCheckpoints) {
  for (const char* text :
       {"", "step_.safetensors", "step_-1.safetensors",
        "step_1.safetensors.tmp", "model.safetensors",
        "step_1.shard_0_of_1.safetensors", "step_1.shard_2_of_2.safetensors",
        "step_1.shard_-1_of_2.safetensors", "step_1.shard_0.safetensors",
        "step_1.shard_0_of_2_of_3.safetensors",
        "step_1.shard_0_of_2.shard_0_of_2.safetensors",
        "step_x.shard_0_of_2.safetensors"}) {
    EXPECT_FALSE(ParseCheckpointName(text).has_value()) << text;
  }
}

// Returns the steps and numbers of shards that SetsToRemove returns.
std::vector<std::pair<int64_t, int>> Removed(
    const std::vector<CheckpointSet>& sets, int64_t saved_step, int keep) {
  std::vector<std::pair<int64_t, int>> removed;
  for (const CheckpointSet& set : SetsToRemove(sets, saved_step, 2, keep))
    removed.emplace_back(set.step, set.num_shards);
  return removed;
}

TEST(CheckpointFolderTest, TheNewestAreKept) {
  const std::map<int, std::string> both = {{0, "a"}, {1, "b"}};
  const std::vector<CheckpointSet> sets = {{50, 2, both}, {40, 2, both},
                                           {40, 3, both}, {30, 2, {{0, "a"}}},
                                           {20, 2, both}, {10, 2, both}};
  using Steps = std::vector<std::pair<int64_t, int>>;
  EXPECT_EQ(Removed(sets, 40, 2), (Steps{{40, 3}, {30, 2}, {10, 2}}));
  EXPECT_EQ(Removed(sets, 40, 1), (Steps{{40, 3}, {30, 2}, {20, 2}, {10, 2}}));
  EXPECT_EQ(Removed(sets, 50, 6), (Steps{{40, 3}, {30, 2}}));
}

// A stale NFS listing of a folder to which other hosts have just written.
TEST(CheckpointFolderTest, AStaleListDeletesNothingOfTheLastSave) {
  const std::map<int, std::string> both = {{0, "a"}, {1, "b"}};
  const std::vector<CheckpointSet> half = {
      {40, 2, {{0, "a"}}}, {30, 2, both}, {20, 2, both}};
  using Steps = std::vector<std::pair<int64_t, int>>;
  EXPECT_EQ(Removed(half, 40, 2), (Steps{{20, 2}}));
  const std::vector<CheckpointSet> none = {{30, 2, both}, {20, 2, both}};
  EXPECT_EQ(Removed(none, 40, 2), (Steps{{20, 2}}));
}

TEST(CheckpointFolderTest, SetsAreOfOneStepAndLayoutNewestFirst) {
  const std::filesystem::path dir =
      std::filesystem::path(testing::TempDir()) / "sets";
  std::filesystem::create_directories(dir);
  for (const CheckpointName& name :
       {CheckpointName{10, 0, 1}, CheckpointName{20, 0, 1},
        CheckpointName{20, 0, 3}, CheckpointName{20, 2, 3}}) {
    std::ofstream(dir / FormatCheckpointName(name)) << "x";
  }
  const auto sets = ListCheckpointSets(dir);
  ASSERT_TRUE(sets.ok()) << sets.status();
  ASSERT_EQ(sets->size(), 3u);
  EXPECT_EQ(sets->at(0).step, 20);
  EXPECT_EQ(sets->at(0).num_shards, 1);
  EXPECT_TRUE(sets->at(0).complete());
  EXPECT_EQ(sets->at(1).num_shards, 3);
  EXPECT_FALSE(sets->at(1).complete());
  EXPECT_EQ(sets->at(1).MissingName(),
            "step_00000020.shard_1_of_3.safetensors");
  EXPECT_EQ(sets->at(2).step, 10);
}

TEST(CheckpointFolderTest, TheLastSupersededFileReplacesEarlierOnes) {
  const fs::path dir = fs::path(testing::TempDir()) / "set_aside";
  fs::remove_all(dir);
  fs::create_directories(dir);
  const std::string path = dir / FormatCheckpointName({10, 0, 1});
  for (const char* run : {"first", "second"}) {
    std::ofstream(path) << run;
    const absl::Status status = SetAsideCheckpoints(dir);
    ASSERT_TRUE(status.ok()) << status;
    std::string found;
    std::ifstream(path + ".superseded") >> found;
    EXPECT_EQ(found, run);
  }
  EXPECT_EQ(ListCheckpointSets(dir)->size(), 0u);
  const absl::Status again = SupersedeSet({10, 1, {{0, path}}});
  EXPECT_TRUE(again.ok()) << "another rank has set it aside: " << again;
}

class SafetensorsIndexTest : public testing::Test {
 protected:
  SafetensorsIndexTest()
      : dir_(fs::path(testing::TempDir()) /
             testing::UnitTest::GetInstance()->current_test_info()->name()) {
    fs::remove_all(dir_);
    fs::create_directories(dir_);
  }

  void SaveShard(int shard, const NamedTensors& tensors) {
    const absl::Status status = SaveSafetensors(
        dir_ / SafetensorsShardName(shard, 2), tensors, {{"format", "pt"}});
    ASSERT_TRUE(status.ok()) << status;
  }

  void SaveBoth() {
    SaveShard(0, {{"embed", torch::ones({4, 2})}});
    SaveShard(1, {{"head.weight", torch::ones({2, 2}, torch::kBFloat16)},
                  {"head.bias", torch::ones({3})}});
  }

  fs::path IndexPath() const { return dir_ / "model.safetensors.index.json"; }

  const fs::path dir_;
};

TEST_F(SafetensorsIndexTest, NamesShardsAsHuggingFaceDoes) {
  EXPECT_EQ(SafetensorsShardName(0, 3), "model-00001-of-00003.safetensors");
  EXPECT_EQ(SafetensorsShardName(2, 3), "model-00003-of-00003.safetensors");
  EXPECT_EQ(SafetensorsShardName(0, 1), "model.safetensors");
}

TEST_F(SafetensorsIndexTest, EachTensorLeadsToTheFileThatHoldsIt) {
  SaveBoth();
  ASSERT_TRUE(SaveSafetensorsIndex(dir_, 2).ok());
  std::ifstream in(IndexPath());
  const nlohmann::json index = nlohmann::json::parse(in);
  EXPECT_EQ(index.at("metadata").at("total_size"), 4 * 2 * 4 + 2 * 2 * 2 + 12);
  const auto& weight_map = index.at("weight_map");
  EXPECT_EQ(weight_map.size(), 3u);
  for (const auto& [name, file] : weight_map.items()) {
    const auto contents = LoadSafetensors(dir_ / file.get<std::string>());
    ASSERT_TRUE(contents.ok()) << contents.status();
    bool found = false;
    for (const auto& [held, tensor] : contents->tensors) found |= held == name;
    EXPECT_TRUE(found) << name << " is not in " << file;
  }
}

TEST_F(SafetensorsIndexTest, AMissingOrTornShardIsNamedAndTheIndexLeftAlone) {
  SaveBoth();
  ASSERT_TRUE(SaveSafetensorsIndex(dir_, 2).ok());
  const auto size = fs::file_size(IndexPath());
  const fs::path second = dir_ / SafetensorsShardName(1, 2);
  fs::resize_file(second, fs::file_size(second) - 1);
  absl::Status status = SaveSafetensorsIndex(dir_, 2);
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(second.string()));
  fs::remove(second);
  status = SaveSafetensorsIndex(dir_, 2);
  EXPECT_TRUE(absl::IsNotFound(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(second.string()));
  EXPECT_EQ(fs::file_size(IndexPath()), size);
}

TEST_F(SafetensorsIndexTest, ATensorInTwoFilesIsRefused) {
  SaveShard(0, {{"w", torch::ones({1})}});
  SaveShard(1, {{"w", torch::ones({1})}});
  const absl::Status status = SaveSafetensorsIndex(dir_, 2);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("the tensor 'w' is both in model-00001-of-00002"),
                    HasSubstr("and in model-00002-of-00002")));
  EXPECT_FALSE(fs::exists(IndexPath()));
}

TEST_F(SafetensorsIndexTest, WeightsInAnotherNumberOfShardsGo) {
  SaveBoth();
  ASSERT_TRUE(SaveSafetensorsIndex(dir_, 2).ok());
  for (const char* name :
       {"model.safetensors", "model-00003-of-00003.safetensors",
        "step_5.safetensors", "model.safetensors.bak"}) {
    std::ofstream(dir_ / name) << "another run's";
  }
  RemoveOtherExports(dir_, 2);
  EXPECT_TRUE(fs::exists(IndexPath()));
  EXPECT_TRUE(fs::exists(dir_ / SafetensorsShardName(1, 2)));
  EXPECT_FALSE(fs::exists(dir_ / "model.safetensors"));
  EXPECT_FALSE(fs::exists(dir_ / "model-00003-of-00003.safetensors"));
  EXPECT_TRUE(fs::exists(dir_ / "step_5.safetensors"));
  EXPECT_TRUE(fs::exists(dir_ / "model.safetensors.bak"));

  std::ofstream(dir_ / "model.safetensors") << "one file";
  RemoveOtherExports(dir_, 1);
  EXPECT_TRUE(fs::exists(dir_ / "model.safetensors"));
  EXPECT_FALSE(fs::exists(IndexPath()));
  EXPECT_FALSE(fs::exists(dir_ / SafetensorsShardName(0, 2)));
}

}  // namespace
}  // namespace rankwise
