#include "trainers/checkpoint/safetensors_index.h"

#include <filesystem>
#include <fstream>
#include <string>

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
