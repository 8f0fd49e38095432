#include "analysis/study/study_output.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/time/time.h"
#include "analysis/runs/run_trace.h"
#include "analysis/study/study_folder.h"
#include "records/replace_file.h"

namespace rankwise {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

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
  // 60 steps of 64 examples of 0.6 ms, on 2 ranks at 60 %; and start-up.
  EXPECT_DOUBLE_EQ(Load().Of(config_, run_)->seconds, 1.1 + 2.304 / 1.2);
  EXPECT_DOUBLE_EQ(Load().Of(config_, {"single", 1, 64})->seconds, 0.8 + 2.304);
  EXPECT_DOUBLE_EQ(Load().Of(config_, {"comm_bench", 2, 0})->seconds, 15);
  config_.trainer_flags = {"--width=4096"};
  EXPECT_FALSE(Load().Of(config_, run_).has_value());
  config_.trainer_flags = {};
  config_.model = "my_model";
  EXPECT_FALSE(Load().Of(config_, run_).has_value());
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
