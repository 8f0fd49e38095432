#include "analysis/study/study_output.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "analysis/runs/run_trace.h"
#include "analysis/study/study_folder.h"
#include "records/replace_file.h"

namespace rankwise {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

TEST(StudyHeading, NamesTheCoresThatTheStudyMayUse) {
  StudyConfig config;
  config.threads = 1;
  config.cores = 1;
  EXPECT_THAT(StudyHeading(config, {}), HasSubstr(", on 1 core of a CPU."));
  config.cores = 2;
  EXPECT_THAT(StudyHeading(config, {}), HasSubstr(", on 2 cores of a CPU."));
}

StudyDescription Description(const std::string& model) {
  StudyDescription study;
  for (const char* name : {"dataset", "data_dir", "device", "backend",
                           "precision", "trainer_flags"}) {
    study.flags[name] = "";
  }
  study.flags["model"] = model;
  study.flags["max_steps"] = "60";
  study.origin = {
      {"cpu_model", "a CPU"}, {"cores", "2"}, {"threads_per_rank", "1"}};
  return study;
}

class RunTimesTest : public testing::Test {
 protected:
  RunTimesTest()
      : results_(
            testing::TempDir() + "/" +
            testing::UnitTest::GetInstance()->current_test_info()->name()) {
    config_.cores = 2;
    config_.model = "simple_cnn";
  }
  void AddStudy(const std::string& name, const StudyDescription& description,
                double seconds) {
    const std::string dir = results_ + "/" + name;
    ASSERT_TRUE(PrepareStudyFolder(dir, FolderUse::kResume).ok());
    ASSERT_TRUE(
        ReplaceFile(StudyFilePath(dir), *FlagfileText(description)).ok());
    for (int i = -1; i <= 1; ++i) {
      AddDuration(dir, "ddp-x2-batch32-rep" + std::to_string(i + 2),
                  absl::Seconds(seconds + i));
    }
  }
  RunTimes Load() {
    return RunTimes(results_, results_ + "/own", Description("vit"));
  }

  const std::string results_;
  StudyConfig config_;
  const PlannedRun run_ = {"ddp", 2, 32};
};

TEST_F(RunTimesTest, TheLatestStudyOfTheSameKindTells) {
  AddStudy("20260101-000000", Description("vit"), 10);
  AddStudy("20260202-000000", Description("vit"), 20);
  AddStudy("20260303-000000", Description("gpt"), 30);
  const auto time = Load().Of(config_, run_);
  ASSERT_TRUE(time.has_value());
  EXPECT_DOUBLE_EQ(time->seconds, 20);
  EXPECT_THAT(time->source, EndsWith("20260202-000000"));
}

TEST_F(RunTimesTest, AnotherMachineTellsNothing) {
  StudyDescription other = Description("vit");
  other.origin["cores"] = "64";
  AddStudy("20260101-000000", other, 10);
  EXPECT_THAT(Load().Of(config_, run_)->source, HasSubstr("a rough guess"));
}

TEST_F(RunTimesTest, TimeGrowsWithTheStepsAndStartUpDoesNot) {
  AddStudy("20260101-000000", Description("vit"), 10);
  config_.max_steps = 120;
  // 1.1 s of start-up on 2 ranks
  EXPECT_DOUBLE_EQ(Load().Of(config_, run_)->seconds, 1.1 + 2 * 8.9);
}

TEST_F(RunTimesTest, RoughlyByTheModel) {
  // 60 steps of 64 examples of 0.6 ms, on 2 ranks at 60 %; plus start-up.
  EXPECT_DOUBLE_EQ(Load().Of(config_, run_)->seconds, 1.1 + 2.304 / 1.2);
  EXPECT_DOUBLE_EQ(Load().Of(config_, {"single", 1, 64})->seconds, 0.8 + 2.304);
  EXPECT_DOUBLE_EQ(Load().Of(config_, {"comm_bench", 2, 0})->seconds, 9);
  config_.trainer_flags = {"--width=4096"};
  EXPECT_FALSE(Load().Of(config_, run_).has_value());
  config_.trainer_flags = {};
  config_.model = "my_model";
  EXPECT_FALSE(Load().Of(config_, run_).has_value());
}

// Durations that differ from the guesses: other start-up, other speed of every
// trainer, and 5 % of noise between runs.
double MadeSeconds(const StudyConfig& config, const PlannedRun& run,
                   std::mt19937_64& random) {
  std::normal_distribution<double> noise(1, 0.05);
  if (!run.IsTraining()) return 22 * noise(random);
  const std::map<std::string, double> efficiency = {
      {"single", 1},     {"ddp", 0.8},
      {"fsdp", 0.6},     {"tensor_parallel", 0.3},
      {"pipeline", 0.7}, {"hybrid", 0.35}};
  const double work =
      2e-3 * static_cast<double>(config.max_steps * run.GlobalBatch());
  return noise(random) *
         (2 + 0.5 * static_cast<double>(run.world_size) +
          work / (efficiency.at(run.trainer) *
                  std::min<double>(4, static_cast<double>(run.world_size))));
}

TEST_F(RunTimesTest, TheTimeLeftConvergesToWithin20Percent) {
  config_.model = "my_model";  // of unknown speed
  config_.cores = 4;
  config_.world_sizes = {1, 2, 4};
  config_.schedules = {"1f1b"};
  config_.layouts =
      *ParseLayouts("ddp,zero3,tp2,pp2,tp4,dp2xtp2,pp2xtp2,pp2xdp2");
  config_.trainers = {"single",          "ddp",      "fsdp",
                      "tensor_parallel", "pipeline", "hybrid"};
  for (uint64_t seed = 0; seed < 10; ++seed) {
    config_.seed = seed;
    const std::vector<PlannedRun> runs = PlanStudy(config_).runs;
    std::mt19937_64 random(seed);
    std::vector<double> seconds;
    for (const PlannedRun& run : runs) {
      seconds.push_back(MadeSeconds(config_, run, random));
    }
    RunTimes times = Load();
    double truth = std::accumulate(seconds.begin(), seconds.end(), 0.0);
    for (size_t done = 0; done + 1 < runs.size(); ++done) {
      times.Add(runs[done], seconds[done]);
      truth -= seconds[done];
      if (done + 1 < runs.size() / 10) continue;
      const auto left = absl::MakeConstSpan(runs).subspan(done + 1);
      const double bound = done + 1 < runs.size() / 5 ? 0.35 : 0.2;
      EXPECT_NEAR(absl::ToDoubleSeconds(times.Sum(config_, left)), truth,
                  bound * truth)
          << "after " << done + 1 << " of " << runs.size() << " runs, seed "
          << seed;
    }
  }
}

TEST_F(RunTimesTest, OtherCellsAreEstimatedByTheRunsSoFar) {
  RunTimes times = Load();
  const PlannedRun other = {"ddp", 2, 64};
  times.Add(run_, 11);
  times.Add(run_, 12);
  times.Add(run_, 19);
  EXPECT_DOUBLE_EQ(times.Of(config_, run_)->seconds, 12);
  EXPECT_DOUBLE_EQ(times.Of(config_, other)->seconds, 12);
  EXPECT_DOUBLE_EQ(times.Of(config_, {"comm_bench", 2, 0})->seconds, 9);
  EXPECT_EQ(times.Sum(config_, {run_, other}), absl::Seconds(24));
}

RunTrace RunOf(const std::string& source_hash) {
  RunTrace run;
  run.ranks.emplace_back();
  run.ranks[0].run.source_hash = source_hash;
  run.ranks[0].run.versions.torch = "2";
  return run;
}

TEST(DifferentCodeText, NamesTheSourcesThatDiffer) {
  EXPECT_EQ(DifferentCodeText({}), "");
  EXPECT_EQ(DifferentCodeText({RunOf("a"), RunOf("a")}), "");
  EXPECT_THAT(
      DifferentCodeText({RunOf("a"), RunOf("b"), RunOf("a"), RunOf("")}),
      HasSubstr("runs are of source a with torch 2 (2 runs), source b with "
                "torch 2 (1 run), unknown code (1 run);"));
}

TEST(ShellWord, QuotesWhatAShellWouldRead) {
  EXPECT_EQ(ShellWord("/a/b-1.c"), "/a/b-1.c");
  EXPECT_EQ(ShellWord("my study"), "'my study'");
  EXPECT_EQ(ShellWord("a'b$c"), "'a'\\''b$c'");
  EXPECT_EQ(ShellWord(""), "''");
}

}  // namespace

}  // namespace rankwise
