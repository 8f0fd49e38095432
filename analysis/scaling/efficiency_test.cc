#include "analysis/scaling/efficiency.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "analysis/runs/trace_for_test.h"

namespace rankwise {
namespace {

using ::testing::HasSubstr;

// Returns a cell whose repetitions have the given seconds per step.
Cell MakeCell(RunForTest config, const std::vector<double>& step_seconds) {
  std::vector<RunTrace> runs;
  for (double seconds : step_seconds) {
    config.step_seconds = seconds;
    runs.push_back(MakeRun(config));
  }
  std::vector<std::string> left_out;
  return GroupIntoCells(runs, {10}, &left_out).at(0);
}

Cell Single() { return MakeCell({.binary = "single"}, {0.1, 0.1, 0.1}); }

std::string WhyNot(const Cell& base, const Cell& cell, Scaling scaling) {
  const auto result = CompareToBase(base, cell, scaling);
  EXPECT_FALSE(result.ok());
  return std::string(result.status().message());
}

TEST(Efficiency, StrongScalingByTheFormula) {
  const Cell cell =
      MakeCell({.world_size = 2, .batch_size = 32}, {0.0625, 0.0625, 0.0625});
  const auto result = CompareToBase(Single(), cell, Scaling::kStrong);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_NEAR(result->speedup, 1.6, 1e-9);
  EXPECT_NEAR(result->efficiency, 0.8, 1e-9);
  EXPECT_NEAR(result->efficiency_interval.low, 0.8, 1e-9);
  EXPECT_NEAR(result->efficiency_interval.high, 0.8, 1e-9);
}

TEST(Efficiency, WeakScalingIsTheRatioOfStepTimes) {
  const Cell cell = MakeCell({.world_size = 4}, {0.125, 0.125});
  const auto result = CompareToBase(Single(), cell, Scaling::kWeak);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_NEAR(result->speedup, 3.2, 1e-9);
  EXPECT_NEAR(result->efficiency, 0.1 / 0.125, 1e-9);
}

TEST(Efficiency, TheBaseMayHaveMoreThanOneRank) {
  const Cell base = MakeCell({.world_size = 2}, {0.1, 0.1});
  const Cell cell = MakeCell({.world_size = 4}, {0.1, 0.1});
  EXPECT_NEAR(CompareToBase(base, cell, Scaling::kWeak)->efficiency, 1, 1e-9);
}

TEST(Efficiency, TheIntervalComesFromTheRepetitions) {
  const Cell cell = MakeCell({.world_size = 2}, {0.1, 0.11, 0.12, 0.13});
  const auto result = CompareToBase(Single(), cell, Scaling::kWeak);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_LT(result->efficiency_interval.low, result->efficiency);
  EXPECT_GT(result->efficiency_interval.high, result->efficiency);
  // Student's t with 3 degrees of freedom, as the base case has no spread.
  EXPECT_NEAR(result->efficiency, 0.873717, 1e-6);
  EXPECT_NEAR(result->efficiency_interval.low, 0.730008, 1e-6);
  EXPECT_NEAR(result->efficiency_interval.high, 1.04572, 1e-5);
}

TEST(Efficiency, RefusesAnotherBatch) {
  const Cell cell = MakeCell({.world_size = 2}, {0.1, 0.1});
  EXPECT_EQ(WhyNot(Single(), cell, Scaling::kStrong),
            "ddp on 2 ranks and its base case single on 1 rank differ in the "
            "global batch, which strong scaling keeps constant: 128 and 64; "
            "//:study -- --scaling=strong runs such cells");
  const Cell strong = MakeCell({.world_size = 2, .batch_size = 32}, {0.1, 0.1});
  EXPECT_THAT(
      WhyNot(Single(), strong, Scaling::kWeak),
      HasSubstr("the batch per rank, which weak scaling keeps constant: "
                "32 and 64"));
}

TEST(Efficiency, RefusesAnotherConfigurationNamingTheFlag) {
  Cell cell = MakeCell({.world_size = 2}, {0.1, 0.1});
  cell.run.flags["lr"] = "0.2";
  EXPECT_THAT(
      WhyNot(Single(), cell, Scaling::kWeak),
      HasSubstr("differ in --lr: \"0.2\" and \"0.1\"; run both with the "
                "same --lr"));
}

TEST(Efficiency, RefusesAnotherMachineOrBuild) {
  const Cell good = MakeCell({.world_size = 2}, {0.1, 0.1});
  Cell cell = good;
  cell.run.threads_per_rank = 2;
  EXPECT_THAT(WhyNot(Single(), cell, Scaling::kWeak),
              HasSubstr("differ in threads per rank: 2 and 1; run both with "
                        "the same --threads"));
  cell = good;
  cell.run.devices = {"cuda:0"};
  EXPECT_THAT(WhyNot(Single(), cell, Scaling::kWeak),
              HasSubstr("differ in the device: cuda and cpu; run both with "
                        "the same --device"));
  cell = good;
  cell.run.host.cpu_model = "Another CPU";
  EXPECT_THAT(WhyNot(Single(), cell, Scaling::kWeak),
              HasSubstr("differ in the CPU: Another CPU and A CPU"));
  cell = good;
  cell.run.versions.torch = "2.10.0";
  EXPECT_THAT(WhyNot(Single(), cell, Scaling::kWeak),
              HasSubstr("differ in the version of torch: 2.10.0 and 2.11.0; "
                        "run both again"));
}

TEST(Efficiency, RefusesASharedAccelerator) {
  Cell cell = MakeCell({.world_size = 2}, {0.1, 0.1});
  cell.shared_device = "cuda:0";
  EXPECT_EQ(WhyNot(Single(), cell, Scaling::kWeak),
            "two ranks of ddp on 2 ranks shared the device cuda:0: pass "
            "--device=auto, and no more ranks than there are devices");
}

TEST(Efficiency, RefusesASingleRepetition) {
  const Cell cell = MakeCell({.world_size = 2}, {0.1});
  EXPECT_EQ(WhyNot(Single(), cell, Scaling::kWeak),
            "ddp on 2 ranks has 1 repetition, and an interval needs 2 or more: "
            "pass --repetitions");
}

TEST(Efficiency, RefusesChangedCode) {
  const Cell good = MakeCell({.world_size = 2}, {0.1, 0.1});
  Cell cell = good;
  cell.run.source_hash = "c0ffee";
  cell.run.git_commit = std::string(40, 'a');
  cell.run.git_state = "modified";
  EXPECT_THAT(WhyNot(Single(), cell, Scaling::kWeak),
              HasSubstr("differ in the source they were built from: c0ffee of "
                        "commit aaaaaaaaaaaa (modified) and 0123456789abcdef "
                        "of an unknown commit; run both again from one, into a "
                        "new --output_dir"));
  cell = good;
  cell.code_versions = {"source a with torch 2", "source b with torch 2"};
  EXPECT_EQ(WhyNot(Single(), cell, Scaling::kWeak),
            "the repetitions of ddp on 2 ranks ran different code (source a "
            "with torch 2, source b with torch 2): run them again, into a new "
            "--output_dir, or pass --force to compare them anyway");
}

TEST(Efficiency, ACommitAloneIsNoOtherCode) {
  Cell cell = MakeCell({.world_size = 2}, {0.1, 0.1});
  cell.run.git_commit = "c0ffee";
  EXPECT_TRUE(CompareToBase(Single(), cell, Scaling::kWeak).ok());
}

TEST(Efficiency, RefusesUnknownCodeOnBothSides) {
  std::vector<RunTrace> runs;
  for (const char* binary : {"single", "single", "ddp", "ddp"}) {
    runs.push_back(MakeRun({.binary = binary}));
    runs.back().ranks[0].run.source_hash = "";
  }
  std::vector<std::string> left_out;
  const std::vector<Cell> cells = GroupIntoCells(runs, {10}, &left_out);
  ASSERT_EQ(cells.size(), 2u);
  EXPECT_EQ(WhyNot(cells[0], cells[1], Scaling::kWeak),
            "the repetitions of single on 1 rank ran code that their records "
            "do not name: run them again, into a new --output_dir, or pass "
            "--force to compare them anyway");
  ComparisonConfig force;
  force.force = true;
  const auto result = CompareToBase(cells[0], cells[1], Scaling::kWeak, force);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(result->warning, HasSubstr("their records do not name"));
}

TEST(Efficiency, RefusesSharedCoresThatNobodyAskedFor) {
  const Cell cell = MakeCell({.world_size = 9}, {0.1, 0.1});  // on 8 cores
  EXPECT_EQ(WhyNot(Single(), cell, Scaling::kWeak),
            "the ranks of ddp on 9 ranks had more threads than cores: lower "
            "--threads, leave out that world size, or pass --oversubscribe to "
            "compare them anyway");
  ComparisonConfig asked;
  asked.allow_oversubscribed = true;
  const auto result = CompareToBase(Single(), cell, Scaling::kWeak, asked);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->warning, "");
}

TEST(Efficiency, NeverComparesAnAblation) {
  Cell cell = MakeCell({.world_size = 2}, {0.1, 0.1});
  cell.run.flags["skip_communication"] = "true";
  const std::string reason =
      "ddp on 2 ranks ran without communication (--skip_communication), and is "
      "compared with nothing: run it without that flag";
  EXPECT_EQ(WhyNot(Single(), cell, Scaling::kWeak), reason);
  ComparisonConfig force;
  force.force = true;
  EXPECT_EQ(
      CompareToBase(Single(), cell, Scaling::kWeak, force).status().message(),
      reason);
  cell.run.flags["skip_communication"] = "false";
  EXPECT_TRUE(CompareToBase(Single(), cell, Scaling::kWeak).ok());
}

TEST(Force, GivesTheFigureAndSaysEverythingThatIsWrongWithIt) {
  Cell cell = MakeCell({.world_size = 2}, {0.125, 0.125});
  cell.run.flags["lr"] = "0.2";
  cell.run.source_hash = "c0ffee";
  cell.shared_device = "cuda:0";
  cell.oversubscribed = true;
  ComparisonConfig force;
  force.force = true;
  EXPECT_TRUE(CheckComparable(Single(), cell, Scaling::kWeak, force).ok());
  const auto result = CompareToBase(Single(), cell, Scaling::kWeak, force);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_NEAR(result->efficiency, 0.8, 1e-9);
  for (const char* reason :
       {"--lr: ", "c0ffee", "cuda:0", "more threads than cores"}) {
    EXPECT_THAT(result->warning, HasSubstr(reason));
  }
}

TEST(Force, OneRepetitionHasAFigureButNoInterval) {
  ComparisonConfig force;
  force.force = true;
  const auto result = CompareToBase(
      Single(), MakeCell({.world_size = 2}, {0.125}), Scaling::kWeak, force);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_NEAR(result->efficiency, 0.8, 1e-9);
  EXPECT_TRUE(std::isnan(result->efficiency_interval.low));
  EXPECT_TRUE(std::isnan(result->efficiency_interval.high));
  EXPECT_THAT(result->warning, HasSubstr("has 1 repetition"));
}

TEST(Force, WhatIsHeldEqualMustBeEqualAllTheSame) {
  ComparisonConfig force;
  force.force = true;
  const Cell cell = MakeCell({.world_size = 2}, {0.1, 0.1});
  EXPECT_THAT(
      CompareToBase(Single(), cell, Scaling::kStrong, force).status().message(),
      HasSubstr("the global batch, which strong scaling keeps constant"));
}

TEST(Force, SaysNothingWhereNothingIsWrong) {
  ComparisonConfig force;
  force.force = true;
  const Cell cell = MakeCell({.world_size = 2}, {0.1, 0.1});
  EXPECT_EQ(CompareToBase(Single(), cell, Scaling::kWeak, force)->warning, "");
}

Cell WithPeak(Cell cell, double bytes) {
  cell.peak_bytes = bytes;
  return cell;
}

TEST(FixedMemory, HoldsThePeakOfTheFullestRankEqual) {
  const Cell base = WithPeak(Single(), 1e9);
  // Twice the batch per rank in equal memory, as a sharded model allows.
  const Cell cell =
      MakeCell({.world_size = 2, .batch_size = 128}, {0.16, 0.16});
  for (double peak : {0.9e9, 1.0e9, 1.1e9}) {
    const auto result =
        CompareToBase(base, WithPeak(cell, peak), Scaling::kFixedMemory);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_NEAR(result->speedup, 2.5, 1e-9);
    EXPECT_NEAR(result->efficiency, 1.25, 1e-9);
  }
  for (double peak : {0.89e9, 1.11e9}) {
    EXPECT_THAT(WhyNot(base, WithPeak(cell, peak), Scaling::kFixedMemory),
                HasSubstr("the peak memory of a rank, which fixed-memory "
                          "scaling keeps constant: "));
  }
  EXPECT_THAT(WhyNot(base, WithPeak(cell, 2e9), Scaling::kFixedMemory),
              HasSubstr("constant: 2000 MB and 1000 MB; //:study -- "
                        "--scaling=fixed_memory runs such cells"));
}

TEST(FixedMemory, RefusesWhatIsNotKnown) {
  const Cell cell = MakeCell({.world_size = 2}, {0.1, 0.1});
  EXPECT_THAT(
      WhyNot(WithPeak(Single(), 1e9), cell, Scaling::kFixedMemory),
      HasSubstr("the peak memory of ddp on 2 ranks, which fixed-memory scaling "
                "keeps constant, is not in its records: run it again"));
  EXPECT_THAT(WhyNot(Single(), WithPeak(cell, 1e9), Scaling::kFixedMemory),
              HasSubstr("the peak memory of single on 1 rank,"));
}

TEST(Efficiency, BackendsMayNotDifferWhereBothHaveOne) {
  Cell base = MakeCell({.world_size = 1}, {0.1, 0.1});
  Cell cell = MakeCell({.world_size = 2}, {0.1, 0.1});
  base.run.backend = "gloo";
  cell.run.backend = "nccl";
  EXPECT_THAT(WhyNot(base, cell, Scaling::kWeak),
              HasSubstr("differ in the backend: nccl and gloo; run both with "
                        "the same --backend"));
  EXPECT_TRUE(CompareToBase(Single(), cell, Scaling::kWeak).ok());
}

TEST(ScalingName, IsThatOfTheCommandLine) {
  EXPECT_EQ(ScalingName(Scaling::kStrong), "strong");
  EXPECT_EQ(ScalingName(Scaling::kWeak), "weak");
  EXPECT_EQ(ScalingName(Scaling::kFixedMemory), "fixed_memory");
}

TEST(FindBase, TheFastestSingleIsTaken) {
  const std::vector<Cell> cells = {
      WithPeak(MakeCell({.binary = "single", .batch_size = 32}, {0.1, 0.1}),
               1e9),
      WithPeak(MakeCell({.binary = "single", .batch_size = 64}, {0.1, 0.1}),
               1e9),
      WithPeak(MakeCell({.binary = "single", .batch_size = 48}, {0.1, 0.1}),
               1e9),
      WithPeak(MakeCell({.world_size = 2}, {0.1, 0.1}), 1e9)};
  EXPECT_EQ(*FindBase(cells, cells[3], Scaling::kFixedMemory), &cells[1]);
}

TEST(FindBase, ASlowSingleIsNoBaseWhereTheTrainerIsFasterOnOneRank) {
  std::vector<Cell> cells = {Single(),
                             MakeCell({.world_size = 1}, {0.09, 0.089, 0.091}),
                             MakeCell({.world_size = 2}, {0.1, 0.1})};
  EXPECT_EQ(*FindBase(cells, cells[2], Scaling::kWeak), &cells[1]);
  EXPECT_EQ(*FindBase(cells, cells[1], Scaling::kWeak), &cells[1]);
  EXPECT_EQ(*FindBase(cells, cells[0], Scaling::kWeak), &cells[0]);
  // Within noise: the median is faster, but the interval contains 1.
  cells[1] = MakeCell({.world_size = 1}, {0.099, 0.098, 0.102});
  EXPECT_EQ(*FindBase(cells, cells[2], Scaling::kWeak), &cells[0]);
  // A cell of several ranks does not replace single.
  cells[1] = MakeCell({.world_size = 2, .batch_size = 32}, {0.01, 0.01});
  cells[2] = MakeCell({.world_size = 4, .batch_size = 16}, {0.01, 0.01});
  EXPECT_EQ(*FindBase(cells, cells[2], Scaling::kStrong), &cells[0]);
}

TEST(FindBase, AnAblationIsNone) {
  std::vector<Cell> cells = {MakeCell({.world_size = 1}, {0.1, 0.1}),
                             MakeCell({.world_size = 2}, {0.1, 0.1})};
  cells[0].run.flags["skip_communication"] = "true";
  EXPECT_EQ(*FindBase(cells, cells[1], Scaling::kWeak), &cells[1]);
}

TEST(FindBase, SingleIsPreferred) {
  const std::vector<Cell> cells = {Single(),
                                   MakeCell({.world_size = 1}, {0.1, 0.1}),
                                   MakeCell({.world_size = 2}, {0.1, 0.1})};
  EXPECT_EQ(*FindBase(cells, cells[2], Scaling::kWeak), &cells[0]);
  EXPECT_EQ(*FindBase(cells, cells[0], Scaling::kWeak), &cells[0]);
}

TEST(FindBase, AmongSeveralAComparableOneIsTaken) {
  const std::vector<Cell> cells = {
      MakeCell({.binary = "single", .batch_size = 32}, {0.1, 0.1}), Single(),
      MakeCell({.world_size = 2}, {0.1, 0.1})};
  EXPECT_EQ(*FindBase(cells, cells[2], Scaling::kWeak), &cells[1]);
}

TEST(FindBase, ASingleThatDoesNotFitHidesNoneThatDoes) {
  const std::vector<Cell> cells = {
      MakeCell({.binary = "single", .batch_size = 32}, {0.1, 0.1}),
      MakeCell({.world_size = 1}, {0.1, 0.1}),
      MakeCell({.world_size = 2}, {0.1, 0.1})};
  EXPECT_EQ(*FindBase(cells, cells[2], Scaling::kWeak), &cells[1]);
}

TEST(FindBase, ACellOfSeveralRanksIsNotItsOwnBaseBesideASingle) {
  const std::vector<Cell> cells = {
      MakeCell({.binary = "single", .batch_size = 32}, {0.1, 0.1}),
      MakeCell({.world_size = 2}, {0.1, 0.1})};
  EXPECT_EQ(*FindBase(cells, cells[1], Scaling::kWeak), &cells[0]);
}

TEST(FindBase, ElseTheSmallestWorldSizeOfTheSameTrainer) {
  const std::vector<Cell> cells = {
      MakeCell({.binary = "fsdp", .world_size = 1}, {0.1, 0.1}),
      MakeCell({.world_size = 2}, {0.1, 0.1}),
      MakeCell({.world_size = 4}, {0.1, 0.1})};
  EXPECT_EQ(*FindBase(cells, cells[2], Scaling::kWeak), &cells[1]);
  EXPECT_EQ(*FindBase(cells, cells[1], Scaling::kWeak), &cells[1]);
}

RunForTest Pipeline(const std::string& schedule, int64_t world_size) {
  return {.binary = "pipeline",
          .world_size = world_size,
          .batch_size = 16,
          .schedule = schedule};
}

TEST(FindBase, AnotherScheduleIsNoBase) {
  const std::vector<Cell> cells = {MakeCell(Pipeline("1f1b", 2), {0.1, 0.1}),
                                   MakeCell(Pipeline("gpipe", 2), {0.1, 0.1}),
                                   MakeCell(Pipeline("gpipe", 4), {0.1, 0.1})};
  EXPECT_EQ(*FindBase(cells, cells[2], Scaling::kStrong), &cells[1]);
}

TEST(Efficiency, APipelineIsComparedByItsGlobalBatch) {
  // 4 micro-batches of 16, reported by both ranks, equal the base's 64.
  const Cell cell = MakeCell(Pipeline("1f1b", 2), {0.0625, 0.0625});
  const auto result = CompareToBase(Single(), cell, Scaling::kStrong);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_NEAR(result->speedup, 1.6, 1e-9);
  EXPECT_NEAR(result->efficiency, 0.8, 1e-9);
  EXPECT_THAT(
      WhyNot(Single(), cell, Scaling::kWeak),
      HasSubstr("the batch per rank, which weak scaling keeps constant: "
                "32 and 64"));
  EXPECT_EQ(WhyNot(Single(), MakeCell(Pipeline("1f1b", 3), {0.1, 0.1}),
                   Scaling::kWeak),
            "pipeline 1f1b on 3 ranks and its base case single on 1 rank "
            "differ in the batch per rank, which weak scaling keeps constant: "
            "21.3 and 64; //:study -- --scaling=weak runs such cells");
}

TEST(Efficiency, APipelinesBatchMayGrowWithItsRanks) {
  RunForTest weak = Pipeline("1f1b", 2);
  weak.micro_batches = 8;
  const auto result =
      CompareToBase(Single(), MakeCell(weak, {0.125, 0.125}), Scaling::kWeak);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_NEAR(result->efficiency, 0.8, 1e-9);
}

TEST(Efficiency, TwoPipelinesMayDifferInTheirShape) {
  const Cell base = MakeCell(Pipeline("1f1b", 2), {0.1, 0.1});
  const Cell cell = MakeCell(Pipeline("1f1b", 4), {0.1, 0.1});
  EXPECT_TRUE(CompareToBase(base, cell, Scaling::kStrong).ok());
  const Cell other = MakeCell(Pipeline("gpipe", 4), {0.1, 0.1});
  EXPECT_THAT(WhyNot(base, other, Scaling::kStrong),
              HasSubstr("differ in --schedule: \"gpipe\" and \"1f1b\""));
}

TEST(Efficiency, RefusesRanksOfSeveralDevices) {
  Cell cell = MakeCell({.world_size = 1}, {0.1, 0.1});
  cell.several_devices_per_rank = true;
  EXPECT_EQ(WhyNot(Single(), cell, Scaling::kWeak),
            "a rank of ddp on 1 rank used several devices, and efficiency "
            "compares ranks of one device each: run a process per device, by "
            "--nproc");
}

TEST(FindBase, SaysWhatIsMissing) {
  const Cell cell = MakeCell({.world_size = 2}, {0.1, 0.1});
  EXPECT_EQ(FindBase({}, cell, Scaling::kWeak).status().message(),
            "there is no base case for ddp on 2 ranks: run \"single\" or a "
            "smaller world size in the same study, as by "
            "--trainers=single,ddp");
}

}  // namespace
}  // namespace rankwise
