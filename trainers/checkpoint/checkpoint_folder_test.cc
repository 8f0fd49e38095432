#include "trainers/checkpoint/checkpoint_folder.h"

#include <filesystem>
#include <fstream>

#include "gtest/gtest.h"

namespace rankwise {
namespace {

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

}  // namespace
}  // namespace rankwise
