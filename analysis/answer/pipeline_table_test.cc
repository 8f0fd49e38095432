#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "analysis/answer/answer.h"
#include "analysis/answer/tables.h"
#include "analysis/runs/trace_for_test.h"
#include "analysis/text/table.h"

namespace rankwise {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string TableOf(const std::vector<RunTrace>& runs) {
  std::vector<std::string> left_out;
  std::string text = "\n";
  const std::vector<Cell> cells = GroupIntoCells(runs, {10}, &left_out);
  for (const Table& table : PipelineTables(cells)) text += TerminalText(table);
  return text;
}

RunTrace Pipeline(int64_t world_size, double step_seconds = 0.1) {
  return MakeRun({.binary = "pipeline",
                  .world_size = world_size,
                  .batch_size = 16,
                  .step_seconds = step_seconds,
                  .schedule = "1f1b"});
}

TEST(PipelineTable, IsOneRowPerCellWithSchedules) {
  const std::string table = TableOf(
      {MakeRun({.binary = "single"}), Pipeline(2), Pipeline(2), Pipeline(4)});
  EXPECT_THAT(
      table,
      HasSubstr(
          "\npipeline       ranks  micro-batches  wall bubble  predicted  "
          "span bubble  predicted  schedule ms  predicted    error\n"));
  EXPECT_THAT(
      table,
      HasSubstr(
          "\npipeline 1f1b      2         4 x 16       62.5 %     60.0 %  "
          "     50.0 %     40.0 %        80.00      70.00  -12.5 %\n"
          "pipeline 1f1b      4         4 x 16       62.5 %     60.0 %  "
          "     50.0 %     40.0 %        80.00      70.00  -12.5 %\n"));
  EXPECT_THAT(
      table,
      HasSubstr("\npipeline       ranks       idle % by rank    waiting % by "
                "rank  peak activations  transfer ms  transfer KB\n"));
  EXPECT_THAT(
      table,
      HasSubstr(
          "\npipeline 1f1b      2            62.5 62.5            25.0 "
          "25.0               2 1         4.00            2\n"
          "pipeline 1f1b      4  62.5 62.5 62.5 62.5  25.0 25.0 25.0 25.0 "
          "          4 3 2 1         2.67            1\n"));
  EXPECT_THAT(table, Not(HasSubstr("single")));
}

TEST(PipelineTable, IsTheMedianOverRepetitions) {
  EXPECT_THAT(TableOf({Pipeline(2, 0.1), Pipeline(2, 0.2), Pipeline(2, 0.4)}),
              HasSubstr("160.00     140.00"));
}

TEST(PipelineTable, UnknownPredictionsAreDashes) {
  RunTrace run = Pipeline(2);
  for (RankTrace& rank : run.ranks) {
    for (ScheduleRecord& record : rank.schedules) {
      record.predicted_seconds = NAN;
      record.predicted_span_bubble = NAN;
      record.predicted_wall_bubble = NAN;
    }
  }
  const std::string table = TableOf({run});
  EXPECT_THAT(table, Not(HasSubstr("nan")));
  EXPECT_THAT(table, HasSubstr("62.5 %          -       50.0 %          -      "
                               "  80.00          -      -\n"));
}

TEST(PipelineTable, ManyRanksAreTheLeastAndTheMostIdle) {
  RunTrace run = Pipeline(8);
  for (ScheduleRecord& record : run.ranks[5].schedules) {
    record.busy_seconds = 0.08;
  }
  EXPECT_THAT(TableOf({run}),
              AllOf(HasSubstr("  0.0 to 62.5  "), HasSubstr("  1 to 8  ")));
}

TEST(PipelineTable, IsEmptyWithoutPipelines) {
  EXPECT_EQ(TableOf({MakeRun({.binary = "single"})}), "\n");
}

}  // namespace
}  // namespace rankwise
