// Tests that a checkpoint is independent of the stages that wrote it: a run
// continues with other stages, ranks and schedules, or in one process, exactly
// like an uninterrupted one.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/trainer/trained.h"
#include "tests/trainer/trainer_process.h"

namespace rankwise {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kStop = 5;
constexpr int64_t kEnd = 9;

struct Way {
  std::string name;
  std::string trainer;
  int ranks;
  Flags flags;
};

void PrintTo(const Way& way, std::ostream* out) { *out << way.name; }

// Seven steps per epoch, the last one with fewer examples.
Finished Run(const Way& way, const std::string& dir, int64_t max_steps,
             const Flags& flags) {
  const Flags common = {
      "--train_size=106",
      "--batch_size=4",
      "--eval=false",
      "--epochs=2",
      "--threads=1",
      "--checkpoint_every=3",
      absl::StrCat("--max_steps=", max_steps),
      absl::StrCat("--nproc=", way.ranks),
      "--checkpoint_dir=" + dir,
      "--record=" + dir + "/run.jsonl",
      way.trainer == "pipeline" ? "--microbatches=4" : "--accumulate=4"};
  const Finished run =
      RunTrainer(way.trainer, Joined(Joined(flags, common), way.flags));
  EXPECT_EQ(run.code, 0) << run.err;
  return run;
}

// Returns the folder of a run that stopped after kStop steps.
std::string Stopped(const Way& way, const Flags& flags) {
  const std::string dir = FreshDir("stopped");
  Run(way, dir, kStop, flags);
  return dir;
}

// Continues from a copy of `stopped`, with a separate record file.
std::string GoOn(const Way& way, const std::string& stopped,
                 const Flags& flags) {
  const std::string dir = FreshDir("resumed");
  std::filesystem::copy(stopped, dir);
  std::filesystem::remove(dir + "/run.jsonl");
  EXPECT_THAT(Run(way, dir, kEnd, Joined(flags, {"--resume"})).out,
              HasSubstr("resumed after step 5"));
  return dir;
}

void ExpectLosses(const Losses& undisturbed, const std::string& dir, int ranks,
                  double tolerance) {
  for (int rank = 0; rank < ranks; ++rank) {
    const auto losses = LossesOf(dir + "/run.jsonl", rank);
    EXPECT_EQ(losses.size(), static_cast<size_t>(kEnd - kStop));
    for (const auto& [step, loss] : losses) {
      EXPECT_NEAR(loss, undisturbed.at(step), tolerance * loss)
          << "rank " << rank << ", step " << step;
    }
  }
}

const Way kSingle = {"Single", "single", 1, {}};
const Way kTwoStages = {"TwoStages", "pipeline", 2, {}};

Losses Undisturbed(const Way& way, const Flags& flags) {
  const std::string dir = FreshDir("undisturbed");
  Run(way, dir, kEnd, flags);
  return LossesOf(dir + "/run.jsonl", 0);
}

class PipelineResumeTest : public ::testing::TestWithParam<Way> {
 protected:
  static void SetUpTestSuite() {
    expected_ = new auto(Undisturbed(kSingle, {}));
    stopped_ = new auto(Stopped(kTwoStages, {}));
  }

  static const Losses* expected_;
  static const std::string* stopped_;
};

const Losses* PipelineResumeTest::expected_ = nullptr;
const std::string* PipelineResumeTest::stopped_ = nullptr;

TEST_P(PipelineResumeTest, TwoStagesGoOnBitEqual) {
  ASSERT_EQ(expected_->size(), static_cast<size_t>(kEnd));
  const std::string dir = GoOn(GetParam(), *stopped_, {});
  ExpectLosses(*expected_, dir, GetParam().ranks, 0);
}

INSTANTIATE_TEST_SUITE_P(
    As, PipelineResumeTest,
    ::testing::Values(
        kSingle, kTwoStages, Way{"FourStages", "pipeline", 4, {"--pp=4"}},
        Way{"FourStagesOnTwoRanks", "pipeline", 2, {"--schedule=zbv"}},
        Way{"InOneProcess", "pipeline", 1, {"--devices=cpu,cpu"}}),
    [](const auto& info) { return info.param.name; });

// Each rank reads its own stage's shard: an error in it is detected by one
// rank, and all continue from the previous checkpoint.
TEST(PipelineCheckpointTest, AShardThatOneRankFindsChangedIsPassedOverByAll) {
  const std::string dir = Stopped(kTwoStages, {});
  const std::string shard = "/step_00000005.shard_1_of_2.safetensors";
  {
    std::fstream file(dir + shard,
                      std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-1, std::ios::end);
    file.put('\x7f');
  }
  std::filesystem::remove(dir + "/run.jsonl");
  const Finished run = rankwise::Run(kTwoStages, dir, kEnd, {"--resume"});
  EXPECT_THAT(run.out, HasSubstr("resumed after step 3"));
  EXPECT_THAT(run.err, HasSubstr(shard));
  const auto expected = Undisturbed(kTwoStages, {});
  const auto losses = LossesOf(dir + "/run.jsonl", 0);
  EXPECT_EQ(losses.size(), static_cast<size_t>(kEnd - 3));
  for (const auto& [step, loss] : losses) EXPECT_EQ(loss, expected.at(step));
}

TEST(PipelineCheckpointTest, OneProcessGoesOnInTwoStages) {
  const std::string dir = GoOn(kTwoStages, Stopped(kSingle, {}), {});
  ExpectLosses(Undisturbed(kSingle, {}), dir, 2, 0);
}

TEST(PipelineCheckpointTest, ATiedWeightIsSavedOnceAndGivenToBothStages) {
  const Flags gpt = {"--model=gpt",          "--depth=4",       "--width=64",
                     "--sequence_length=32", "--optimizer=sgd", "--lr=0.1",
                     "--momentum=0.9"};
  const std::string stopped = Stopped(kTwoStages, gpt);
  EXPECT_TRUE(
      std::filesystem::exists(stopped + "/model.safetensors.index.json"));
  const std::string from_single = Stopped(kSingle, gpt);
  EXPECT_LE(LargestDistance(WeightsIn(from_single), WeightsIn(stopped)), 1e-6);

  const Losses expected = Undisturbed(kTwoStages, gpt);
  ExpectLosses(expected, GoOn(kTwoStages, stopped, gpt), 2, 0);
  ExpectLosses(expected, GoOn(kSingle, stopped, gpt), 1, 1e-6);
  ExpectLosses(expected, GoOn(kTwoStages, from_single, gpt), 2, 1e-6);
}

}  // namespace
}  // namespace rankwise
