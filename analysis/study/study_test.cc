// Tests the study through its command line, with fake trainers that only write
// records (fake_trainer_for_test.cc).

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "analysis/study/study_fixture_for_test.h"

namespace rankwise {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

TEST_F(StudyTest, PrintsTheTableOfWhatItRan) {
  const Outcome outcome = Study("--repetitions=2");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_THAT(outcome.output,
              HasSubstr("8 runs of 60 steps, 1 thread per rank"));
  EXPECT_THAT(outcome.output, HasSubstr("[ 8/8] "));
  EXPECT_THAT(outcome.output,
              HasSubstr("Base case: single on 1 rank, 1 thread"));
  // 1 ms per example, 25 % more on 2 ranks.
  EXPECT_THAT(outcome.output,
              HasSubstr("Strong scaling: ddp on 2 ranks, with the same global "
                        "batch of 64, trains 1.60 times as fast"));
  EXPECT_THAT(outcome.output, HasSubstr("80.0 % efficiency"));
  EXPECT_THAT(outcome.output, HasSubstr("What costs most\n"));
  EXPECT_EQ(CountRecords(".jsonl"), 8);
}

constexpr char kAllTrainers[] =
    " --trainers=single,ddp,model_parallel,pipeline ";

TEST_F(StudyTest, RunsEveryScheduleOfThePipeline) {
  const Outcome outcome =
      Study(absl::StrCat("--repetitions=2 --model=good", kAllTrainers));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("18 runs of 60 steps"));
  EXPECT_THAT(outcome.output,
              HasSubstr("] pipeline 1f1b x2, 4 micro-batches of 16, run 2: 800 "
                        "images/s"));
  // 64 examples in 80 ms, against 64 ms of single.
  for (const char* row :
       {"\nmodel_parallel             strong ", "\npipeline gpipe ",
        "\npipeline 1f1b              strong       2          32     2       "
        "800     0.80      40.0 %",
        "\npipeline interleaved_1f1b  strong ",
        "\npipeline zero_bubble_h1    strong "}) {
    EXPECT_THAT(outcome.output, HasSubstr(row));
  }
  EXPECT_THAT(
      outcome.output,
      HasSubstr("\npipeline 1f1b                  2         4 x 16       50.0 "
                "%     50.0 %       50.0 %     50.0 %        80.00      80.00  "
                "+0.0 %\n"));
  EXPECT_THAT(outcome.output,
              HasSubstr("\npipeline 1f1b                  2       50.0 50.0 "));
  EXPECT_THAT(outcome.output,
              HasSubstr("\nmodel_parallel                 2         1 x 64 "));
  EXPECT_EQ(CountRecords(".jsonl"), 18);
}

TEST_F(StudyTest, RanksThatCutLayersShareTheirExamples) {
  const Outcome outcome = Study(
      "--repetitions=2 --trainers=single,tensor_parallel,hybrid "
      "--scaling=strong --model=good");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  // 64 examples in 80 ms.
  for (const char* trainer : {"tensor_parallel", "hybrid tp2     "}) {
    EXPECT_THAT(outcome.output,
                HasSubstr(absl::StrCat("\n", trainer,
                                       "  strong       2          32     2     "
                                       "  800     0.80      40.0 %")));
  }
}

TEST_F(StudyTest, PipelinesScaleWeaklyWhereAskedTo) {
  const Outcome outcome = Study(
      "--repetitions=2 --trainers=single,pipeline --schedules=gpipe "
      "--pipeline_scaling=weak --model=good");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  // 128 examples in 160 ms.
  EXPECT_THAT(
      outcome.output,
      HasSubstr("\npipeline gpipe  weak         2          64     2     "
                "  800     0.80      40.0 %"));
  EXPECT_THAT(outcome.output, HasSubstr("        8 x 16 "));
}

TEST_F(StudyTest, CutsThatTheModelDoesNotHaveAreNotRun) {
  const Outcome outcome = Study(
      absl::StrCat("--repetitions=1 --dry_run --verbose --world_sizes=1,4 "
                   "--schedules=1f1b,interleaved_1f1b",
                   kAllTrainers));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("--schedule=1f1b"));
  EXPECT_THAT(outcome.output, Not(HasSubstr("--schedule=interleaved_1f1b")));
  EXPECT_THAT(
      outcome.output,
      HasSubstr("Not run: pipeline interleaved_1f1b x4: the model would be cut "
                "into 8 stages, and simple_cnn has 4 layers.\n"));
  const Outcome none = Study(
      "--trainers=pipeline --schedules=1f1b --world_sizes=8 --batch_size=64");
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_THAT(none.output, HasSubstr("study: nothing to run: pipeline 1f1b x8: "
                                     "the model would be cut into 8 stages"));
}

TEST_F(StudyTest, WhatWasNotRunIsSaidUnderTheTable) {
  const Outcome outcome = Study(
      "--repetitions=1 --world_sizes=2 --trainers=single,model_parallel "
      "--model=linear");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_THAT(outcome.output,
              HasSubstr("\nNot run: model_parallel x2: the model would be cut "
                        "into 2 stages, and linear has 1 layer.\n"));
}

TEST_F(StudyTest, PrintsTheSameTableFromTheRecords) {
  const std::string first =
      Study(absl::StrCat("--repetitions=2", kAllTrainers)).output;
  const Outcome again = Study("--from=out");
  EXPECT_EQ(again.exit_code, 0);
  EXPECT_THAT(again.output, HasSubstr("\npipeline zero_bubble_h1"));
  EXPECT_THAT(first, HasSubstr(again.output));
}

TEST_F(StudyTest, RecordsWithNothingToMeasureAreExitCode3) {
  EXPECT_EQ(Study("--repetitions=1 --world_sizes=1").exit_code, 0);
  const Outcome again = Study("--from=out --warmup_steps=1000");
  EXPECT_EQ(again.exit_code, 3);
  EXPECT_THAT(again.output, HasSubstr("No run could be measured.\n"));
  EXPECT_THAT(again.output, HasSubstr("after 1000 of warm-up"));
}

TEST_F(StudyTest, WritesTheReport) {
  const Outcome outcome = Study("--repetitions=2 --report --comm_bench");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  const std::string path = (root() / "out/report.html").string();
  EXPECT_THAT(outcome.output, HasSubstr("\nReport: " + path + "\n"));
  const std::string report = ReadFile("out/report.html");
  EXPECT_THAT(report, HasSubstr("const Plotly = 'a stand-in';"));
  EXPECT_THAT(report, HasSubstr("Scaling study, 20"));
  fs::remove(path);
  EXPECT_EQ(BareStudy("--from=out --report").exit_code, 0);
  EXPECT_EQ(ReadFile("out/report.html"), report);
}

// Run ids and the day in the title are in UTC, too.
TEST_F(StudyTest, ItsFolderIsNamedInUtc) {
  const auto name_now = [] {
    return absl::FormatTime("%Y%m%d-%H%M%SZ", absl::Now(), absl::UTCTimeZone());
  };
  ::setenv("TZ", "Fixed/UTC+14:00:00", /*overwrite=*/1);
  const std::string begin = name_now();
  const Outcome outcome = BareStudy(
      "--threads=1 --trainers=single --world_sizes=1 --repetitions=1 "
      "--ablations=0");
  ::unsetenv("TZ");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  const std::string name =
      fs::directory_iterator(root() / "results")->path().filename();
  EXPECT_GE(name, begin);
  EXPECT_LE(name, name_now());
}

TEST_F(StudyTest, AMissingReportIsSaid) {
  const Outcome outcome =
      Study("--repetitions=2 --report --plotly_js=nowhere.js");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.output, HasSubstr("\nNo report: "));
  EXPECT_THAT(outcome.output, HasSubstr("nowhere.js"));
  EXPECT_EQ(CountRecords(".jsonl"), 8);
}

TEST_F(StudyTest, AFailedCellCostsOnlyItself) {
  const Outcome outcome = Study("--repetitions=2 --model=crashes");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.output, HasSubstr("was killed by signal 9 (Killed)"));
  EXPECT_THAT(outcome.output, HasSubstr("skipped, as this configuration"));
  EXPECT_THAT(outcome.output, HasSubstr("\nFailed: ddp x2, batch 32 per rank"));
  EXPECT_THAT(outcome.output, HasSubstr("\nddp      both"));
  EXPECT_EQ(CountRecords(".jsonl"), 4);
  EXPECT_EQ(CountRecords(".incomplete"), 2);
}

TEST_F(StudyTest, AFailedRunShowsItsLastLines) {
  const Outcome outcome = Study("--repetitions=1 --model=bad");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.output, HasSubstr("exited with code 3\n"));
  EXPECT_THAT(outcome.output, HasSubstr("\nsingle: a reason to fail\n"));
}

TEST_F(StudyTest, ARunThatEndsEarlyFails) {
  const Outcome outcome = Study("--repetitions=1 --model=stops");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.output, HasSubstr("3 steps leave 0 after 10 of warm-up"));
}

TEST_F(StudyTest, ARunThatHangsIsEnded) {
  const Outcome outcome =
      Study("--repetitions=1 --model=hangs --run_timeout=1s");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.output, HasSubstr("(--run_timeout)"));
  EXPECT_THAT(outcome.output, HasSubstr("hanging as process"));
}

TEST_F(StudyTest, TheSameFolderTwiceIsRefused) {
  EXPECT_EQ(Study("--repetitions=1").exit_code, 0);
  const Outcome again = Study("--repetitions=1");
  EXPECT_EQ(again.exit_code, 2);
  EXPECT_THAT(again.output, HasSubstr("out: holds records already"));
}

TEST_F(StudyTest, BadCommandLinesSayWhatIsWrong) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"--world_sizes=0", "\"0\" is not a world size"},
      {"--world_sizes=2,x", "\"x\" is not a world size"},
      {"--repetitions=0", "--repetitions=0: expected 1 or more"},
      {"--repetitions=two", "Illegal value 'two' specified for flag"},
      {"--trainers=horovod", "\"horovod\" is unknown; expected some of single"},
      {"--schedules=2f2b", "\"2f2b\" is unknown; expected some of naive"},
      {"--pipeline_scaling=both",
       "--pipeline_scaling=both: \"both\" is unknown"},
      {"--trainers=pipeline --microbatches=5",
       "divides it into --microbatches=5, and it does not divide"},
      {"--scaling=both", "\"both\" is unknown; expected some of strong,weak"},
      {"--max_steps=5", "--max_steps=5: expected 15 or more"},
      {"--batch_size=33", "does not divide by the world size 2"},
      {"--run_timeout=0s", "--run_timeout: expected a time above 0"},
      {"--trainer_dir=nowhere", "nowhere/single is not an executable file"},
      {"--output_dir=/proc/study", "/proc/study: cannot write there"},
      {"--trainer_flags=fast", "\"fast\" is no flag"},
      {"--from=nowhere", "nowhere: no such file or folder"},
      {"--comm_bench --trainer_dir=bare",
       "bare nor next to it: build //comm_bench, or go without by "
       "--comm_bench=false"},
      {"--ablations=-1", "--ablations=-1: expected 1 or more, or 0 for none"},
      {"--ablation_schedules=2f2b", "--ablation_schedules=2f2b: \"2f2b\" is"},
      {"--scaling=fixed_memory",
       "--memory_limit: --scaling=fixed_memory gives"},
      {"--memory_limit=1GB", "--memory_limit: nothing depends on it"},
      {"--scaling=fixed_memory --memory_limit=much",
       "--memory_limit=much: expected an amount of memory such as 512MB"},
      {"--flagfile=nowhere.flags", "nowhere.flags: cannot be read"},
      {"--resume --output_dir=", "--resume: pass --output_dir too"},
      {"--resume --from=trainers", "pass one of the two"},
      {"--resume --output_dir=trainers", "trainers holds no study.flags"},
      {"--from=trainers", "trainers: holds no *.jsonl"},
      {"--from=trainers --warmup_steps=-1", "--warmup_steps: expected 0"},
      {"--data_dir=images",
       "--data_dir: which dataset's files it holds is not given"},
      {"--data_dir=images --trainer_flags=--dataset=linear",
       "--data_dir: --dataset=linear reads no files: pass --dataset=cifar10 "
       "or --dataset=text or --dataset=tokens too"},
      {"--dataset=cifar10 --data_dir=\"$(printf 'a\\nb')\"",
       "--data_dir: its value holds a line"},
      {"--unknown=1", "Unknown command line flag 'unknown'"},
      {"1,2", "unexpected argument \"1,2\""},
  };
  for (const auto& [flags, message] : cases) {
    const Outcome outcome = Study(flags);
    EXPECT_EQ(outcome.exit_code, 2) << flags;
    EXPECT_THAT(outcome.output, HasSubstr(message)) << flags;
    EXPECT_THAT(outcome.output, Not(HasSubstr("terminate called"))) << flags;
  }
}

}  // namespace
}  // namespace rankwise
