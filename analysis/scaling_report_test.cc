#include "analysis/scaling_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "analysis/trace_for_test.h"

namespace rankwise {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Three repetitions of single, ddp on 1 rank, and ddp on 2 ranks both ways.
std::vector<RunTrace> Study() {
  std::vector<RunTrace> runs;
  for (int repetition = 0; repetition < 3; ++repetition) {
    runs.push_back(MakeRun({.binary = "single", .step_seconds = 0.1}));
    runs.push_back(MakeRun({.step_seconds = 0.1}));
    runs.push_back(
        MakeRun({.world_size = 2, .batch_size = 32, .step_seconds = 0.0625}));
    runs.push_back(MakeRun({.world_size = 2, .step_seconds = 0.125}));
  }
  return runs;
}

TEST(ScalingReport, IsTheTableAndTwoLinesInWords) {
  EXPECT_EQ(
      ScalingReport(Study(), {}),
      "Base case: single on 1 rank, 1 thread per rank, batch 64; medians over "
      "repetitions of 10 steps after warm-up.\n\n"
      "trainer  scaling  ranks  batch/rank  runs  images/s  speedup  "
      "efficiency   95 % interval  exposed comm  data wait\n"
      "-------------------------------------------------------------"
      "----------------------------------------------------\n"
      "single   base         1          64     3       640     1.00  "
      "         -               -        10.0 %      5.0 %\n"
      "ddp      both         1          64     3       640     1.00  "
      "   100.0 %  [100.0, 100.0]        10.0 %      5.0 %\n"
      "ddp      strong       2          32     3      1024     1.60  "
      "    80.0 %    [80.0, 80.0]        10.0 %      5.0 %\n"
      "ddp      weak         2          64     3      1024     1.60  "
      "    80.0 %    [80.0, 80.0]        10.0 %      5.0 %\n\n"
      "Strong scaling: ddp on 2 ranks, with the same global batch of 64, "
      "trains 1.60 times as fast as single on 1 rank (ideal 2): 80.0 % "
      "efficiency, 95 % interval [80.0, 80.0]; 10.0 % of the ranks' time is "
      "exposed communication, 5.0 % waiting for data.\n"
      "Weak scaling: ddp on 2 ranks, with the same batch of 64 per rank, "
      "trains 1.60 times as fast as single on 1 rank (ideal 2): 80.0 % "
      "efficiency, 95 % interval [80.0, 80.0]; 10.0 % of the ranks' time is "
      "exposed communication, 5.0 % waiting for data.\n");
}

RunTrace Pipeline(const std::string& schedule, double step_seconds) {
  return MakeRun({.binary = "pipeline",
                  .world_size = 2,
                  .batch_size = 16,
                  .step_seconds = step_seconds,
                  .schedule = schedule});
}

TEST(ScalingReport, PipelinesAreRowsOfTheirSchedule) {
  std::vector<RunTrace> runs = Study();
  for (int repetition = 0; repetition < 2; ++repetition) {
    runs.push_back(Pipeline("1f1b", 0.08));
    runs.push_back(Pipeline("gpipe", 0.1));
  }
  const std::string text = ScalingReport(runs, {});
  EXPECT_THAT(text, HasSubstr("\npipeline 1f1b   strong       2          32    "
                              " 2       800     1.25      62.5 %"));
  EXPECT_THAT(text, HasSubstr("\npipeline gpipe  strong       2          32    "
                              " 2       640     1.00      50.0 %"));
  EXPECT_THAT(text, HasSubstr("\npipeline        ranks  micro-batches"));
  EXPECT_THAT(text, HasSubstr("\npipeline 1f1b       2         4 x 16"));
  // The fastest of 2 ranks, though it is not the last.
  EXPECT_THAT(text, HasSubstr("\nStrong scaling: ddp on 2 ranks"));
  runs.push_back(Pipeline("zbv", 0.05));
  runs.push_back(Pipeline("zbv", 0.05));
  EXPECT_THAT(ScalingReport(runs, {}),
              HasSubstr("\nStrong scaling: pipeline zbv on 2 ranks, with the "
                        "same global batch of 64, trains 2.00 times"));
}

TEST(ScalingReport, RefusalsAreSaidUnderTheTable) {
  std::vector<RunTrace> runs = Study();
  runs.push_back(MakeRun({.world_size = 4, .batch_size = 48}));
  EXPECT_THAT(
      ScalingReport(runs, {}),
      HasSubstr("No efficiency: ddp on 4 ranks and its base case single on 1 "
                "rank differ in the global batch, which strong scaling holds "
                "equal: 192 and 64; //:study"));
}

TEST(ScalingReport, OneRepetitionGivesNoEfficiency) {
  const std::string text = ScalingReport(
      {MakeRun({.binary = "single"}), MakeRun({.world_size = 2})}, {});
  EXPECT_THAT(text, HasSubstr("Weak scaling: no efficiency"));
  EXPECT_THAT(text, HasSubstr("single on 1 rank has 1 repetition"));
  EXPECT_THAT(text, Not(HasSubstr("nan")));
}

TEST(ScalingReport, OversubscribedRowsAreMarked) {
  std::vector<RunTrace> runs = Study();
  runs.push_back(MakeRun({.world_size = 9}));  // of 8 cores
  const std::string text = ScalingReport(runs, {});
  EXPECT_THAT(text, HasSubstr("\nddp*     weak         9"));
  EXPECT_THAT(text, HasSubstr("* more threads than cores"));
}

TEST(ScalingReport, RunsLeftOutAreNamed) {
  std::vector<RunTrace> runs = Study();
  runs.push_back(MakeRun({.steps = 2, .run_id = "killed"}));
  EXPECT_THAT(ScalingReport(runs, {}),
              HasSubstr("Left out: killed.jsonl: 2 steps leave 0"));
}

TEST(ScalingReport, NothingToReport) {
  EXPECT_EQ(ScalingReport({}, {}), "No run could be measured.\n");
}

}  // namespace
}  // namespace rankwise
