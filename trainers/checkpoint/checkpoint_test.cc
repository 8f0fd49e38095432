#include "trainers/checkpoint/checkpoint.h"

#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainers/checkpoint/load_all_for_test.h"
#include "trainers/checkpoint/safetensors.h"

namespace rankwise {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

Checkpoint At(int64_t step) {
  Checkpoint checkpoint;
  checkpoint.step = step;
  checkpoint.epoch = 2;
  checkpoint.position = step % 7;
  checkpoint.metadata = {{"seed", "0"}, {"config", R"({"lr":0.001})"}};
  checkpoint.tensors = {
      {"model.fc.weight", torch::full({3, 5}, static_cast<double>(step))},
      {"optimizer.exp_avg.fc.weight", torch::rand({3, 5})},
      {"rng.cpu", torch::randint(256, {40}, torch::kByte)}};
  return checkpoint;
}

class CheckpointTest : public testing::Test {
 protected:
  CheckpointTest()
      : dir_(fs::path(testing::TempDir()) /
             testing::UnitTest::GetInstance()->current_test_info()->name()),
        store_(dir_, 3) {
    fs::remove_all(dir_);
  }

  void SaveAll(std::vector<int64_t> steps) {
    for (const int64_t step : steps) {
      const absl::Status status = store_.Save(At(step));
      ASSERT_TRUE(status.ok()) << status;
    }
  }

  std::set<std::string> Names() const {
    std::set<std::string> names;
    for (const auto& item : fs::directory_iterator(dir_))
      names.insert(item.path().filename());
    return names;
  }

  std::string Bytes(int64_t step) const {
    std::ifstream in(store_.Path(step), std::ios::binary);
    return {std::istreambuf_iterator<char>(in),
            std::istreambuf_iterator<char>()};
  }

  void Overwrite(int64_t step, const std::string& bytes) {
    std::ofstream(store_.Path(step), std::ios::binary) << bytes;
  }

  // With an intact step 10 and `bytes` as step 20: expects step 10 to be
  // loaded, and returns step 20's refusal.
  std::string RefusalOf(const std::string& bytes) {
    Overwrite(20, bytes);
    std::vector<std::string> warnings;
    const auto latest = LoadAll(store_, &warnings);
    EXPECT_TRUE(latest.ok()) << latest.status();
    EXPECT_EQ((*latest)->step, 10);
    EXPECT_THAT(warnings, SizeIs(1));
    EXPECT_THAT(warnings[0], HasSubstr("checkpoint passed over: "));
    EXPECT_THAT(warnings[0], HasSubstr("step_00000020.safetensors: "));
    return warnings[0];
  }

  const fs::path dir_;
  CheckpointStore store_;
};

TEST_F(CheckpointTest, AFolderWithoutCheckpointsHasNone) {
  std::vector<std::string> warnings;
  EXPECT_EQ(LoadAll(store_, &warnings).value(), std::nullopt);
  fs::create_directories(dir_);
  std::ofstream(dir_ / "model.safetensors") << "weights";
  EXPECT_EQ(LoadAll(store_, &warnings).value(), std::nullopt);
  EXPECT_THAT(warnings, IsEmpty());
}

TEST_F(CheckpointTest, ComesBackAsItWasSaved) {
  const Checkpoint saved = At(123);
  ASSERT_TRUE(store_.Save(saved).ok());
  std::vector<std::string> warnings;
  const auto loaded = LoadAll(store_, &warnings);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ((*loaded)->step, 123);
  EXPECT_EQ((*loaded)->epoch, 2);
  EXPECT_EQ((*loaded)->position, 123 % 7);
  EXPECT_EQ((*loaded)->metadata, saved.metadata);
  const auto tensors = TensorsOf(**loaded);
  ASSERT_EQ(tensors.size(), saved.tensors.size());
  for (const TensorBlock& block : saved.tensors)
    EXPECT_TRUE(tensors.at(block.name).equal(block.values));
  EXPECT_THAT(warnings, IsEmpty());
}

TEST_F(CheckpointTest, KeepsTheLastFew) {
  SaveAll({10, 20, 30, 40, 50});
  EXPECT_THAT(Names(), ElementsAre("step_00000030.safetensors",
                                   "step_00000040.safetensors",
                                   "step_00000050.safetensors"));
}

TEST_F(CheckpointTest, LaterStepsAreSetAsideWhenAnEarlierOneIsSaved) {
  SaveAll({10, 30});
  SaveAll({20});
  EXPECT_THAT(Names(),
              UnorderedElementsAre("step_00000010.safetensors",
                                   "step_00000020.safetensors",
                                   "step_00000030.safetensors.superseded"));
  std::vector<std::string> warnings;
  EXPECT_EQ(LoadAll(store_, &warnings).value()->step, 20);
}

TEST_F(CheckpointTest, LeftOverTemporaryFilesAreRemoved) {
  SaveAll({10});
  std::ofstream(store_.Path(20) + ".tmp") << "half";
  std::ofstream(store_.Path(20) + ".123.tmp") << "half";
  std::ofstream(dir_ / "notes.tmp") << "not ours";
  SaveAll({30});
  EXPECT_THAT(Names(),
              UnorderedElementsAre("notes.tmp", "step_00000010.safetensors",
                                   "step_00000030.safetensors"));
}

TEST_F(CheckpointTest, EveryTruncationIsRefused) {
  SaveAll({10, 20});
  const std::string bytes = Bytes(20);
  for (size_t size = 0; size < bytes.size(); size += 13)
    RefusalOf(bytes.substr(0, size));
  EXPECT_THAT(RefusalOf(""),
              HasSubstr("at byte 0: the file ends, 8 bytes short"));
  EXPECT_THAT(RefusalOf(bytes.substr(0, bytes.size() - 1)),
              HasSubstr("are outside the file's"));
}

TEST_F(CheckpointTest, EveryFlippedDataBitIsRefused) {
  SaveAll({10, 20});
  const std::string bytes = Bytes(20);
  const size_t data_bytes = 2 * 3 * 5 * sizeof(float) + 40;
  for (size_t back = 1; back <= data_bytes; ++back) {
    std::string flipped = bytes;
    flipped[bytes.size() - back] ^= static_cast<char>(1 << (back % 8));
    EXPECT_THAT(RefusalOf(flipped),
                HasSubstr("was written: the file was changed"));
  }
}

TEST_F(CheckpointTest, AChangedHeaderIsRefused) {
  SaveAll({10, 20});
  std::string renamed = Bytes(20);
  renamed.replace(renamed.find("model.fc"), 8, "model.fd");
  EXPECT_THAT(RefusalOf(renamed), HasSubstr("the file was changed"));
  std::string other_seed = Bytes(20);
  other_seed.replace(other_seed.find(R"("seed":"0")"), 10, R"("seed":"1")");
  EXPECT_THAT(RefusalOf(other_seed), HasSubstr("the file was changed"));
  std::string other_checksum = Bytes(20);
  const std::string key = R"("rankwise.checksum":")";
  other_checksum.replace(other_checksum.find(key) + key.size(), 2, R"(\n)");
  EXPECT_THAT(RefusalOf(other_checksum), HasSubstr(R"(but "\n)"))
      << "in one line";
}

TEST_F(CheckpointTest, ForeignFilesAreRefused) {
  SaveAll({10, 20});
  EXPECT_THAT(RefusalOf("PK\x03\x04 a pickle of another program"),
              HasSubstr("bytes is announced, but"));
  const std::string weights = dir_ / "weights";
  ASSERT_TRUE(
      SaveSafetensors(weights, {{"w", torch::ones({2})}}, {{"format", "pt"}})
          .ok());
  fs::copy_file(weights, store_.Path(20), fs::copy_options::overwrite_existing);
  std::vector<std::string> warnings;
  EXPECT_EQ(LoadAll(store_, &warnings).value()->step, 10);
  EXPECT_THAT(warnings[0],
              HasSubstr("is not a rankwise checkpoint (no rankwise.checksum)"));
}

TEST_F(CheckpointTest, ARenamedCheckpointIsRefused) {
  SaveAll({10});
  EXPECT_THAT(RefusalOf(Bytes(10)),
              HasSubstr("holds step 10, not the step of its name"));
}

TEST_F(CheckpointTest, AFolderInACheckpointsPlaceIsPassedOver) {
  SaveAll({10});
  fs::create_directories(store_.Path(20));
  std::vector<std::string> warnings;
  EXPECT_EQ(LoadAll(store_, &warnings).value()->step, 10);
  EXPECT_THAT(warnings[0], HasSubstr("cannot open it: Is a directory"));
}

TEST_F(CheckpointTest, WhenNoneIsWholeTheErrorSaysWhy) {
  SaveAll({10, 20});
  Overwrite(10, "torn");
  Overwrite(20, "");
  std::vector<std::string> warnings;
  const auto latest = LoadAll(store_, &warnings);
  const std::string message(latest.status().message());
  EXPECT_EQ(latest.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(message,
              HasSubstr("none of the 2 checkpoints in " + dir_.string()));
  EXPECT_THAT(message, HasSubstr("start without --resume"));
  EXPECT_THAT(message,
              HasSubstr("step_00000010.safetensors: at byte 4: the file ends"));
  EXPECT_THAT(message,
              HasSubstr("step_00000020.safetensors: at byte 0: the file ends"));
}

TEST_F(CheckpointTest, AnUnusableFolderIsNamed) {
  std::ofstream(dir_) << "a file";
  EXPECT_THAT(
      std::string(store_.Save(At(1)).message()),
      HasSubstr("cannot create the checkpoint folder " + dir_.string()));
  std::vector<std::string> warnings;
  EXPECT_THAT(std::string(LoadAll(store_, &warnings).status().message()),
              HasSubstr("cannot read the checkpoint folder " + dir_.string() +
                        ": Not a directory"));
}

TEST_F(CheckpointTest, AFullDiskLeavesTheEarlierCheckpointAlone) {
  SaveAll({10});
  signal(SIGXFSZ, SIG_IGN);
  rlimit before;
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit limit = {200, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &limit);
  const absl::Status status = store_.Save(At(20));
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("writing " + store_.Path(20)),
                    HasSubstr("File too large")));
  EXPECT_THAT(Names(), ElementsAre("step_00000010.safetensors"));
}

TEST_F(CheckpointTest, MissingTensorsAreRefused) {
  Checkpoint checkpoint = At(1);
  checkpoint.tensors.push_back({"model.fc.bias", torch::Tensor()});
  EXPECT_EQ(store_.Save(checkpoint).message(),
            "tensor 'model.fc.bias' is not a dense tensor");
  EXPECT_THAT(Names(), IsEmpty());
}

}  // namespace
}  // namespace rankwise
