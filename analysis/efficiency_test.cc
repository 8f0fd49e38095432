#include "analysis/efficiency.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "analysis/trace_for_test.h"

namespace rankwise {
namespace {

using ::testing::HasSubstr;

// A cell whose repetitions take the given seconds a step.
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
  EXPECT_GE(result->efficiency_interval.low, 0.1 / 0.13 - 1e-9);
  EXPECT_LE(result->efficiency_interval.high, 1 + 1e-9);
}

TEST(Efficiency, RefusesAnotherBatch) {
  const Cell cell = MakeCell({.world_size = 2}, {0.1, 0.1});
  EXPECT_EQ(WhyNot(Single(), cell, Scaling::kStrong),
            "ddp on 2 ranks and its base case single on 1 rank differ in the "
            "global batch, which strong scaling holds equal: 128 and 64");
  const Cell strong = MakeCell({.world_size = 2, .batch_size = 32}, {0.1, 0.1});
  EXPECT_THAT(WhyNot(Single(), strong, Scaling::kWeak),
              HasSubstr("the batch per rank, which weak scaling holds equal: "
                        "32 and 64"));
}

TEST(Efficiency, RefusesAnotherConfigurationNamingTheFlag) {
  Cell cell = MakeCell({.world_size = 2}, {0.1, 0.1});
  cell.run.flags["lr"] = "0.2";
  EXPECT_THAT(WhyNot(Single(), cell, Scaling::kWeak),
              HasSubstr("differ in --lr: \"0.2\" and \"0.1\""));
}

TEST(Efficiency, RefusesAnotherMachineOrBuild) {
  const Cell good = MakeCell({.world_size = 2}, {0.1, 0.1});
  Cell cell = good;
  cell.run.threads_per_rank = 2;
  EXPECT_THAT(WhyNot(Single(), cell, Scaling::kWeak),
              HasSubstr("differ in threads per rank: 2 and 1"));
  cell = good;
  cell.run.devices = {"cuda:0"};
  EXPECT_THAT(WhyNot(Single(), cell, Scaling::kWeak),
              HasSubstr("differ in the device: cuda and cpu"));
  cell = good;
  cell.run.host.cpu_model = "Another CPU";
  EXPECT_THAT(WhyNot(Single(), cell, Scaling::kWeak),
              HasSubstr("differ in the CPU: Another CPU and A CPU"));
  cell = good;
  cell.run.versions.torch = "2.10.0";
  EXPECT_THAT(WhyNot(Single(), cell, Scaling::kWeak),
              HasSubstr("differ in the version of torch: 2.10.0 and 2.11.0"));
}

TEST(Efficiency, RefusesASharedAccelerator) {
  Cell cell = MakeCell({.world_size = 2}, {0.1, 0.1});
  cell.shared_device = "cuda:0";
  EXPECT_EQ(WhyNot(Single(), cell, Scaling::kWeak),
            "two ranks of ddp on 2 ranks shared the device cuda:0");
}

TEST(Efficiency, RefusesASingleRepetition) {
  const Cell cell = MakeCell({.world_size = 2}, {0.1});
  EXPECT_EQ(WhyNot(Single(), cell, Scaling::kWeak),
            "ddp on 2 ranks has 1 repetition, and an interval needs 2 or more: "
            "pass --repetitions");
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
  // 4 micro-batches of 16, which both ranks report, are the 64 of the base.
  const Cell cell = MakeCell(Pipeline("1f1b", 2), {0.0625, 0.0625});
  const auto result = CompareToBase(Single(), cell, Scaling::kStrong);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_NEAR(result->speedup, 1.6, 1e-9);
  EXPECT_NEAR(result->efficiency, 0.8, 1e-9);
  EXPECT_THAT(WhyNot(Single(), cell, Scaling::kWeak),
              HasSubstr("the batch per rank, which weak scaling holds equal: "
                        "32 and 64"));
  EXPECT_EQ(WhyNot(Single(), MakeCell(Pipeline("1f1b", 3), {0.1, 0.1}),
                   Scaling::kWeak),
            "pipeline 1f1b on 3 ranks and its base case single on 1 rank "
            "differ in the batch per rank, which weak scaling holds equal: "
            "21.3 and 64");
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
            "compares ranks of one device each");
}

TEST(FindBase, SaysWhatIsMissing) {
  const Cell cell = MakeCell({.world_size = 2}, {0.1, 0.1});
  EXPECT_EQ(FindBase({}, cell, Scaling::kWeak).status().message(),
            "there is no base case for ddp on 2 ranks: run \"single\" or a "
            "smaller world size in the same study");
}

}  // namespace
}  // namespace rankwise
