// Tests the listing of a study, its auxiliary runs and its searches.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "analysis/study/study_fixture_for_test.h"

namespace rankwise {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kAll[] =
    "--ablations=3 --comm_bench "
    "--trainers=single,ddp,model_parallel,pipeline ";

// A study that searches its batches.
constexpr char kSearch[] =
    "--repetitions=1 --scaling=fixed_memory --memory_limit=500MB "
    "--trainers=single ";

using DryRunTest = StudyTest;

TEST_F(DryRunTest, ListsTheCellsAndTheTime) {
  const Outcome outcome = Study(std::string(kAll) + "--dry_run");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  for (const char* row :
       {"\nsingle +1 +64 +5 +[0-9.]+ +[0-9]+\n", "\nsingle +1 +16 +3 +",
        "\nddp +2 +32 +5 +", "\nddp without communication +2 +32 +3 +",
        "\npipeline 1f1b +2 +4 x 16 +5 +",
        "\npipeline 1f1b without communication +2 +4 x 16 +3 +",
        "\ncomm_bench +2 +- +3 +9.0 +27\n"}) {
    EXPECT_THAT(outcome.output, ContainsRegex(row));
  }
  EXPECT_THAT(outcome.output,
              ContainsRegex("\nIn all about [0-9ms]+, by a rough guess for an "
                            "idle EPYC core.\n"));
  EXPECT_THAT(outcome.output, Not(HasSubstr("--record=")));
  EXPECT_FALSE(fs::exists(root() / "out"));
}

TEST_F(DryRunTest, SaysWhatIsLeftToResume) {
  EXPECT_EQ(Study("--repetitions=2").exit_code, 0);
  fs::remove(root() / "out/single-x1-batch64-rep1.jsonl");
  EXPECT_THAT(BareStudy("--output_dir=out --resume --dry_run").output,
              HasSubstr("7 of 8 runs are complete already.\n"));
  EXPECT_EQ(BareStudy("--output_dir=out --resume --dry_run --seed=1").exit_code,
            2);
}

TEST_F(DryRunTest, VerboseShowsTheCommands) {
  const Outcome outcome =
      Study("--repetitions=1 --comm_bench --dry_run --verbose");
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.output,
              AllOf(HasSubstr("trainers/ddp --record="), HasSubstr("--nproc=2"),
                    HasSubstr("ddp-x2-batch32-rep1.jsonl"),
                    HasSubstr("trainers/comm_bench --record=")));
}

TEST_F(DryRunTest, EarlierStudiesTellTheTime) {
  EXPECT_EQ(Study("--repetitions=3 --output_dir=results/a").exit_code, 0);
  const Outcome alike = Study("--repetitions=1 --dry_run");
  EXPECT_THAT(alike.output,
              AllOf(HasSubstr("by the runs in "), HasSubstr("results/a.\n"),
                    Not(HasSubstr("a rough guess"))));
  const Outcome other = Study("--repetitions=1 --dry_run --model=mlp");
  EXPECT_THAT(other.output, HasSubstr("by a rough guess"));
  const Outcome unknown = Study("--repetitions=1 --dry_run --model=my_model");
  EXPECT_THAT(unknown.output,
              AllOf(HasSubstr(" ?\n"),
                    HasSubstr("In all about 0 without the 4 cells marked ?")));
}

TEST_F(DryRunTest, AuxiliaryRunsAreMadeOnce) {
  const Outcome outcome = Study("--repetitions=2 --ablations=1 --comm_bench");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  // 4 cells and the benchmark twice; single with batch 32, and two cells
  // without communication.
  EXPECT_THAT(outcome.output,
              HasSubstr(": 11 runs of 60 steps and 2 of comm_bench,"));
  EXPECT_EQ(CountRecords(".jsonl"), 13);
  for (const char* name :
       {"single-x1-batch32-rep1", "ddp-x2-batch32-nocomm-rep1",
        "ddp-x2-batch64-nocomm-rep1", "comm_bench-x2-rep1",
        "comm_bench-x2-rep2"}) {
    EXPECT_TRUE(fs::exists(root() / "out" / (std::string(name) + ".jsonl")))
        << name;
  }
  EXPECT_THAT(BareStudy("--from=out").output, HasSubstr("Base case: single"));
}

TEST_F(DryRunTest, OneRankNeedsNoBenchmark) {
  const Outcome outcome =
      Study("--repetitions=1 --comm_bench --trainer_dir=bare --world_sizes=1");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
}

TEST_F(DryRunTest, FindsTheBatchThatMemoryAllows) {
  const std::string flags =
      absl::StrCat(kSearch, "--repetitions=2 --trainers=single,ddp ");
  const Outcome listed = Study(flags + "--dry_run");
  EXPECT_THAT(listed.output,
              AllOf(ContainsRegex("\nddp +2 +largest +2 +"),
                    HasSubstr("stays under 500 MB; short runs find it")));
  const Outcome outcome = Study(flags);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  // 100 MB, 1 MB per example, and 1 MB more on rank 1.
  EXPECT_THAT(outcome.output,
              AllOf(HasSubstr("Under 500 MB: single x1, batch 400 per rank\n"),
                    HasSubstr("Under 500 MB: ddp x1, batch 400 per rank\n"),
                    HasSubstr("Under 500 MB: ddp x2, batch 392 per rank\n"),
                    HasSubstr("6 runs of 60 steps")));
  EXPECT_TRUE(fs::exists(root() / "out/probes/ddp-x2-batch392-rep1.jsonl"));
  EXPECT_TRUE(fs::exists(root() / "out/ddp-x2-batch392-rep2.jsonl"));
  EXPECT_EQ(CountRecords(".jsonl"), 6);
}

TEST_F(DryRunTest, NoProbeTimesLayers) {
  EXPECT_EQ(Study(absl::StrCat(kSearch, "--repetitions=2")).exit_code, 0);
  const auto times_layers = [this](const std::string& stem) {
    return absl::StrContains(ReadFile("out/" + stem + ".jsonl"),
                             "\"profile\":\"true\"");
  };
  EXPECT_TRUE(times_layers("single-x1-batch400-rep1"));
  EXPECT_FALSE(times_layers("single-x1-batch400-rep2"));
  for (const char* probe : {"8", "64", "400"}) {
    EXPECT_FALSE(
        times_layers(absl::StrCat("probes/single-x1-batch", probe, "-rep1")));
  }
  EXPECT_FALSE(times_layers("probes/whole/single-x1-batch400-rep1"));
}

TEST_F(DryRunTest, ProbesAreNotRepeated) {
  EXPECT_EQ(Study(kSearch).exit_code, 0);
  const fs::path probe = root() / "out/probes/single-x1-batch8-rep1.jsonl";
  const auto written = fs::last_write_time(probe);
  const Outcome resumed = BareStudy("--output_dir=out --resume");
  EXPECT_EQ(resumed.exit_code, 0) << resumed.output;
  EXPECT_THAT(resumed.output, HasSubstr("Kept: 1 of 1 runs"));
  EXPECT_EQ(fs::last_write_time(probe), written);
}

TEST_F(DryRunTest, ABatchThatARunDiesOfIsTooLarge) {
  const Outcome outcome = Study(absl::StrCat(kSearch, "--model=greedy"));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_THAT(outcome.output,
              AllOf(HasSubstr("Probe: single x1, batch 400 per rank: exited "
                              "with code 4, which counts as too large"),
                    HasSubstr("Under 500 MB: single x1, batch 296 per rank")));
  const Outcome resumed = BareStudy("--output_dir=out --resume");
  EXPECT_EQ(resumed.exit_code, 0) << resumed.output;
  EXPECT_THAT(resumed.output,
              AllOf(Not(HasSubstr("too large")),
                    HasSubstr("Under 500 MB: single x1, batch 296 per rank")));
}

TEST_F(DryRunTest, TheBatchHoldsForAWholeRun) {
  const Outcome outcome = Study(absl::StrCat(kSearch, "--model=grows"));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  // 100 MB, 1 MB per example and 1 MB per step.
  EXPECT_THAT(outcome.output,
              AllOf(HasSubstr("Under 500 MB: single x1, batch 336 per rank\n"),
                    Not(HasSubstr("Over --memory_limit"))));
  EXPECT_TRUE(
      fs::exists(root() / "out/probes/whole/single-x1-batch336-rep1.jsonl"));
}

TEST_F(DryRunTest, ARunAboveTheLimitIsSaid) {
  const Outcome outcome = Study(absl::StrCat(kSearch, "--model=swells"));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_THAT(outcome.output,
              HasSubstr("\nOver --memory_limit, 500 MB: single x1, batch 400 "
                        "per rank, run 1: 700 MB\n"));
}

TEST_F(DryRunTest, AProbeThatTakesTooLongIsNotTooLarge) {
  const Outcome outcome =
      Study(absl::StrCat(kSearch, "--model=slow --run_timeout=1s"));
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.output, AllOf(HasSubstr("probe of single x1, batch 400"),
                                    HasSubstr("(--run_timeout)")));
}

TEST_F(DryRunTest, RefusesALimitThatNothingFits) {
  const Outcome small = Study(absl::StrCat(kSearch, "--memory_limit=50MB"));
  EXPECT_EQ(small.exit_code, 2);
  EXPECT_THAT(small.output,
              HasSubstr("--memory_limit: single x1, batch 8 per rank: needs "
                        "108 MB with its smallest batch, 8, and the limit is "
                        "50 MB"));
  const Outcome silent = Study(absl::StrCat(
      kSearch, "--memory_limit=1GB --model=forgets --output_dir=other"));
  EXPECT_EQ(silent.exit_code, 1);
  EXPECT_THAT(silent.output, HasSubstr("recorded no peak memory"));
}

}  // namespace
}  // namespace rankwise
