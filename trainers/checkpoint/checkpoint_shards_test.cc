// Checkpoints in shards, as saved by several ranks.
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "torch/types.h"
#include "trainers/checkpoint/checkpoint.h"
#include "trainers/checkpoint/load_all_for_test.h"

namespace rankwise {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr int kLayers = 6;
constexpr int kKept = 2;

std::string LayerName(int layer) {
  return absl::StrCat("model.", layer, ".weight");
}

// Returns the layers of one shard; their values encode the step and the layer.
Checkpoint PartOf(int64_t step, int shard, int num_shards) {
  Checkpoint part;
  part.step = step;
  part.epoch = 1;
  part.position = step;
  part.metadata = {{"config", "{}"}};
  if (shard == 0) part.metadata["only"] = "in shard 0";
  for (int layer = 0; layer < kLayers; ++layer) {
    if (layer * num_shards / kLayers != shard) continue;
    part.tensors.push_back(
        {LayerName(layer), torch::full({2}, 1000.0 * layer + 1.0 * step)});
  }
  part.tensors.push_back({"shared", torch::ones({1})});
  return part;
}

class CheckpointShardsTest : public testing::Test {
 protected:
  CheckpointShardsTest()
      : dir_(fs::path(testing::TempDir()) /
             testing::UnitTest::GetInstance()->current_test_info()->name()) {
    fs::remove_all(dir_);
  }

  CheckpointStore StoreOf(int shard, int num_shards) const {
    return CheckpointStore(dir_, kKept, shard, num_shards);
  }

  // Saves on `num_shards` ranks; the ranks prune one after another.
  void SaveAll(int64_t step, int num_shards) {
    std::vector<CheckpointStore> stores;
    stores.reserve(num_shards);
    for (int shard = 0; shard < num_shards; ++shard) {
      stores.push_back(StoreOf(shard, num_shards));
      const absl::Status status =
          stores.back().Save(PartOf(step, shard, num_shards));
      ASSERT_TRUE(status.ok()) << status;
    }
    for (CheckpointStore& store : stores) {
      const absl::Status status = store.Prune();
      ASSERT_TRUE(status.ok()) << status;
    }
  }

  // Expects this checkpoint to be the newest intact one for any process.
  void ExpectLoads(int64_t step, std::vector<std::string>* warnings) const {
    CheckpointStore store(dir_, kKept);
    const auto latest = LoadAll(store, warnings);
    ASSERT_TRUE(latest.ok()) << latest.status();
    ASSERT_TRUE(latest->has_value());
    EXPECT_EQ((*latest)->step, step);
    EXPECT_EQ((*latest)->epoch, 1);
    EXPECT_EQ((*latest)->position, step);
    EXPECT_EQ((*latest)->metadata.at("only"), "in shard 0");
    EXPECT_THAT((*latest)->metadata, SizeIs(2));
    const auto tensors = TensorsOf(**latest);
    EXPECT_THAT((*latest)->tensors, SizeIs(kLayers + 1));
    for (int layer = 0; layer < kLayers; ++layer) {
      EXPECT_EQ(tensors.at(LayerName(layer))[1].item<double>(),
                1000.0 * layer + step);
    }
  }

  std::set<std::string> Names() const {
    std::set<std::string> names;
    for (const auto& item : fs::directory_iterator(dir_))
      names.insert(item.path().filename());
    return names;
  }

  const fs::path dir_;
};

TEST_F(CheckpointShardsTest, AnyNumberOfShardsIsLoadedWhole) {
  int64_t step = 0;
  for (const int num_shards : {2, 3, 1, 6, 2}) {
    SaveAll(++step, num_shards);
    std::vector<std::string> warnings;
    ExpectLoads(step, &warnings);
    EXPECT_THAT(warnings, IsEmpty());
  }
}

TEST_F(CheckpointShardsTest, FilesWithKnownHeadersAreOpenedWhenTheyAreRead) {
  SaveAll(1, 2);
  CheckpointStore store = StoreOf(0, 2);
  const CheckpointHeaders headers = store.ReadLatestHeaders();
  EXPECT_THAT(headers, SizeIs(2));
  // Replace the file whose header is known by another save's.
  const std::string replaced = StoreOf(1, 2).Path(1);
  ASSERT_TRUE(SaveCheckpointFile(replaced, {1, 1, 2}, PartOf(2, 1, 2)).ok());
  const auto load = [&](const std::string& layer) {
    std::vector<std::string> warnings;
    return store
        .LoadLatest(
            &warnings,
            [&](CheckpointReader& reader) {
              return reader.Read(layer).status();
            },
            1, headers)
        .status();
  };
  EXPECT_TRUE(load(LayerName(0)).ok());
  EXPECT_THAT(std::string(load(LayerName(kLayers - 1)).message()),
              AllOf(HasSubstr(replaced), HasSubstr("the file was changed")));
  fs::remove(replaced);
  EXPECT_THAT(std::string(load(LayerName(0)).message()),
              HasSubstr("shard_1_of_2.safetensors is missing"));
  EXPECT_THAT(store.ReadLatestHeaders(), IsEmpty());
}

TEST_F(CheckpointShardsTest, EveryLayoutsStoreLoadsWhatAnotherSaved) {
  SaveAll(7, 2);
  for (int shard = 0; shard < 3; ++shard) {
    CheckpointStore store = StoreOf(shard, 3);
    std::vector<std::string> warnings;
    const auto latest = LoadAll(store, &warnings);
    ASSERT_TRUE(latest.ok()) << latest.status();
    EXPECT_THAT((*latest)->tensors, SizeIs(kLayers + 1));
  }
}

TEST_F(CheckpointShardsTest, AMissingShardIsNamedAndTheEarlierOneLoaded) {
  SaveAll(10, 3);
  SaveAll(20, 3);
  fs::remove(StoreOf(1, 3).Path(20));
  std::vector<std::string> warnings;
  ExpectLoads(10, &warnings);
  EXPECT_THAT(
      warnings,
      ElementsAre("checkpoint passed over: "
                  "step_00000020.shard_1_of_3.safetensors is missing: the "
                  "checkpoint has 2 of 3 shards"));
}

TEST_F(CheckpointShardsTest, ATornShardIsNamedAndTheEarlierOneLoaded) {
  SaveAll(10, 2);
  SaveAll(20, 2);
  const std::string path = StoreOf(1, 2).Path(20);
  fs::resize_file(path, fs::file_size(path) - 3);
  std::vector<std::string> warnings;
  ExpectLoads(10, &warnings);
  ASSERT_THAT(warnings, SizeIs(1));
  EXPECT_THAT(warnings[0],
              AllOf(HasSubstr("checkpoint passed over: "), HasSubstr(path)));
}

// Changes a bit of the last layer, before the bytes of "shared".
void ChangeLastLayer(const std::string& path) {
  constexpr int kFromEnd = -5;
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(kFromEnd, std::ios::end);
  const char last = static_cast<char>(file.get());
  file.seekp(kFromEnd, std::ios::end);
  file.put(static_cast<char>(last ^ 1));
}

TEST_F(CheckpointShardsTest, ShardsWithoutWhatIsNeededAreNotRead) {
  SaveAll(10, 3);
  SaveAll(20, 3);
  const std::string path = StoreOf(2, 3).Path(20);
  ChangeLastLayer(path);
  std::string needed = LayerName(2);  // of shard 1
  torch::Tensor values = torch::zeros({2});
  const LoadFunction load = [&](CheckpointReader& reader) {
    return reader.Read({needed, values});
  };
  CheckpointStore store = StoreOf(1, 3);
  std::vector<std::string> warnings;
  EXPECT_EQ(store.LoadLatest(&warnings, load).value(), 20);
  EXPECT_THAT(warnings, IsEmpty());
  EXPECT_EQ(values[1].item<double>(), 2020);

  needed = LayerName(5);  // of shard 2
  EXPECT_EQ(store.LoadLatest(&warnings, load).value(), 10);
  EXPECT_EQ(values[1].item<double>(), 5010);
  EXPECT_THAT(warnings, ElementsAre(HasSubstr(path)));

  // Truncation is detected by the file's size.
  fs::resize_file(path, fs::file_size(path) - 1);
  needed = LayerName(2);
  EXPECT_EQ(store.LoadLatest(&warnings, load).value(), 10);
}

TEST_F(CheckpointShardsTest, AnErrorThatIsNoDamageEndsTheSearch) {
  SaveAll(10, 2);
  SaveAll(20, 2);
  std::vector<std::string> warnings;
  const absl::Status status =
      StoreOf(0, 2)
          .LoadLatest(&warnings,
                      [](CheckpointReader&) {
                        return absl::FailedPreconditionError("another run's");
                      })
          .status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
}

TEST_F(CheckpointShardsTest, LaterStepsThanAskedForAreNotLookedAt) {
  SaveAll(10, 2);
  SaveAll(20, 2);
  CheckpointStore store = StoreOf(0, 2);
  std::vector<std::string> warnings;
  EXPECT_EQ(LoadAll(store, &warnings, 19).value()->step, 10);
  EXPECT_THAT(warnings, IsEmpty());
  EXPECT_EQ(LoadAll(store, &warnings, 9).value(), std::nullopt);
}

TEST_F(CheckpointShardsTest, AShardUnderAnothersNameIsRefused) {
  SaveAll(10, 2);
  SaveAll(20, 2);
  fs::copy_file(StoreOf(0, 2).Path(20), StoreOf(1, 2).Path(20),
                fs::copy_options::overwrite_existing);
  std::vector<std::string> warnings;
  ExpectLoads(10, &warnings);
  ASSERT_THAT(warnings, SizeIs(1));
  EXPECT_THAT(warnings[0], HasSubstr("holds shard 0/2, not 1/2"));
}

// After a crash before Prune, such as between the saves of two ranks or during
// a save over an older run's checkpoint, the intact one can still be loaded.
TEST_F(CheckpointShardsTest, ACrashBetweenTwoShardsLosesNothing) {
  SaveAll(10, 2);
  ASSERT_TRUE(StoreOf(0, 2).Save(PartOf(20, 0, 2)).ok());
  std::vector<std::string> warnings;
  ExpectLoads(10, &warnings);
  EXPECT_THAT(warnings, SizeIs(1));
  SaveAll(20, 3);
  warnings.clear();
  ExpectLoads(20, &warnings);
  EXPECT_THAT(warnings, IsEmpty());
  EXPECT_THAT(Names(),
              ElementsAre("step_00000010.shard_0_of_2.safetensors",
                          "step_00000010.shard_1_of_2.safetensors",
                          "step_00000020.shard_0_of_2.safetensors.superseded",
                          "step_00000020.shard_0_of_3.safetensors",
                          "step_00000020.shard_1_of_3.safetensors",
                          "step_00000020.shard_2_of_3.safetensors"));
}

TEST_F(CheckpointShardsTest, ShardsOfTwoRunsAreNotMixed) {
  SaveAll(10, 2);
  SaveAll(20, 2);
  Checkpoint other = PartOf(20, 1, 2);
  other.metadata["config"] = "{\"lr\": 0.1}";
  ASSERT_TRUE(StoreOf(1, 2).Save(other).ok());
  std::vector<std::string> warnings;
  ExpectLoads(10, &warnings);
  ASSERT_THAT(warnings, SizeIs(1));
  EXPECT_THAT(warnings[0],
              AllOf(HasSubstr("shard_1_of_2.safetensors: its config is"),
                    HasSubstr("they are of different runs")));
}

TEST_F(CheckpointShardsTest, ATensorOfTwoShapesIsRefused) {
  SaveAll(10, 2);
  SaveAll(20, 2);
  Checkpoint other = PartOf(20, 1, 2);
  other.tensors.back().values = torch::zeros({3});
  ASSERT_TRUE(StoreOf(1, 2).Save(other).ok());
  std::vector<std::string> warnings;
  ExpectLoads(10, &warnings);
  ASSERT_THAT(warnings, SizeIs(1));
  EXPECT_THAT(warnings[0], HasSubstr("its tensor shared is of shape [3], in an "
                                     "earlier shard of [1]"));
}

TEST_F(CheckpointShardsTest, PruneKeepsTheNewestWholeOnesOfAnyLayout) {
  SaveAll(10, 1);
  SaveAll(20, 2);
  ASSERT_TRUE(StoreOf(0, 2).Save(PartOf(30, 0, 2)).ok());  // only this shard
  SaveAll(40, 3);
  EXPECT_THAT(Names(), ElementsAre("step_00000020.shard_0_of_2.safetensors",
                                   "step_00000020.shard_1_of_2.safetensors",
                                   "step_00000040.shard_0_of_3.safetensors",
                                   "step_00000040.shard_1_of_3.safetensors",
                                   "step_00000040.shard_2_of_3.safetensors"));
}

TEST_F(CheckpointShardsTest, LaterStepsOfAnyLayoutAreSetAside) {
  SaveAll(10, 2);
  SaveAll(30, 1);
  for (int shard = 0; shard < 3; ++shard) {
    ASSERT_TRUE(StoreOf(shard, 3).Save(PartOf(40, shard, 3)).ok());
  }
  SaveAll(20, 2);
  std::vector<std::string> warnings;
  ExpectLoads(20, &warnings);
  EXPECT_THAT(warnings, IsEmpty());
  EXPECT_TRUE(fs::exists(StoreOf(0, 1).Path(30) + ".superseded"));
  for (int shard = 0; shard < 3; ++shard) {
    EXPECT_TRUE(fs::exists(StoreOf(shard, 3).Path(40) + ".superseded"));
  }
  EXPECT_TRUE(fs::exists(StoreOf(1, 2).Path(10)));
}

TEST_F(CheckpointShardsTest, NothingIsDeletedBeforeAllHaveSaved) {
  SaveAll(10, 2);
  SaveAll(20, 2);
  CheckpointStore first = StoreOf(0, 2);
  EXPECT_TRUE(first.Prune().ok()) << "nothing saved yet";
  ASSERT_TRUE(first.Save(PartOf(30, 0, 2)).ok());
  const absl::Status status = first.Prune();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("lacks step_00000030.shard_1_of_2.safetensors"));
  EXPECT_THAT(Names(), SizeIs(5));
  ASSERT_TRUE(StoreOf(1, 2).Save(PartOf(30, 1, 2)).ok());
  EXPECT_TRUE(first.Prune().ok());
  EXPECT_THAT(Names(), SizeIs(2 * kKept));
}

TEST_F(CheckpointShardsTest, AnotherRanksFileBeingWrittenIsLeftAlone) {
  SaveAll(10, 2);
  const std::string theirs = StoreOf(1, 2).Path(20) + ".123.tmp";
  std::ofstream(theirs) << "half";
  ASSERT_TRUE(StoreOf(0, 2).Save(PartOf(20, 0, 2)).ok());
  EXPECT_TRUE(fs::exists(theirs));
}

}  // namespace
}  // namespace rankwise
