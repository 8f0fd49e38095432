#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "analysis/runs/throughput.h"
#include "analysis/runs/trace_for_test.h"

namespace rankwise {
namespace {

using ::testing::HasSubstr;

// Two ranks, steps of 0.1 s: see trace_for_test.h.
RunTrace TwoRanks() {
  return MakeRun({.binary = "pipeline", .world_size = 2, .schedule = "1f1b"});
}

PipelineUse Measure(const RunTrace& run, int64_t warmup_steps = 10) {
  const auto use = MeasurePipelineUse(run, {warmup_steps});
  EXPECT_TRUE(use.ok()) << use.status();
  return use.ok() ? *use : PipelineUse();
}

std::string WhyNot(const RunTrace& run) {
  return std::string(MeasurePipelineUse(run, {10}).status().message());
}

TEST(PipelineUse, IsByTheFormulas) {
  const PipelineUse use = Measure(TwoRanks());
  EXPECT_EQ(use.schedule, "1f1b");
  EXPECT_EQ(use.pipeline_size, 2);
  EXPECT_EQ(use.micro_batches, 4);
  ASSERT_EQ(use.ranks.size(), 2u);
  EXPECT_EQ(use.ranks[1].pipeline_rank, 1);
  EXPECT_NEAR(use.ranks[0].idle_share, 1 - 0.03 / 0.08, 1e-12);
  EXPECT_NEAR(use.ranks[0].wait_share, 0.25, 1e-12);
  EXPECT_EQ(use.ranks[0].peak_activations, 2);
  EXPECT_NEAR(use.schedule_seconds, 0.08, 1e-12);
  EXPECT_NEAR(use.wall_bubble, 1 - 0.03 / 0.08, 1e-12);
  EXPECT_NEAR(use.span_bubble, 1 - 0.03 / 0.06, 1e-12);
  EXPECT_NEAR(use.predicted_seconds, 0.07, 1e-12);
  EXPECT_NEAR(use.predicted_wall_bubble, 0.6, 1e-12);
  EXPECT_NEAR(use.predicted_span_bubble, 0.4, 1e-12);
}

TEST(PipelineUse, TheWallIsThatOfTheSlowestRankOfTheStep) {
  RunTrace run = TwoRanks();
  for (ScheduleRecord& r : run.ranks[1].schedules) r.schedule_seconds = 0.12;
  const PipelineUse use = Measure(run);
  EXPECT_NEAR(use.schedule_seconds, 0.12, 1e-12);
  EXPECT_NEAR(use.wall_bubble, 1 - 0.03 / 0.12, 1e-12);
  EXPECT_NEAR(use.span_bubble, 0.5, 1e-12);
  // Idle shares refer to each rank's own time.
  EXPECT_NEAR(use.ranks[0].idle_share, 1 - 0.03 / 0.08, 1e-12);
  EXPECT_NEAR(use.ranks[1].idle_share, 1 - 0.03 / 0.12, 1e-12);
}

TEST(PipelineUse, BubblesAreMeansOverRanks) {
  RunTrace run = TwoRanks();
  for (ScheduleRecord& r : run.ranks[1].schedules) r.busy_seconds = 0.06;
  const PipelineUse use = Measure(run);
  EXPECT_NEAR(use.wall_bubble, 1 - (0.03 + 0.06) / 2 / 0.08, 1e-12);
  EXPECT_NEAR(use.span_bubble, 1 - (0.03 + 0.06) / 2 / 0.06, 1e-12);
}

TEST(PipelineUse, AnotherReplicaHasAnotherWall) {
  RunTrace run = MakeRun({.binary = "pipeline",
                          .world_size = 4,
                          .schedule = "1f1b",
                          .replicas = 2});
  for (ScheduleRecord& r : run.ranks[2].schedules) r.schedule_seconds = 0.1;
  const PipelineUse use = Measure(run);
  EXPECT_NEAR(use.wall_bubble, 1 - 0.03 * (1 / 0.08 + 1 / 0.1) / 2, 1e-12);
  ASSERT_EQ(use.ranks.size(), 4u);
  EXPECT_EQ(use.ranks[3].replica, 1);
  EXPECT_EQ(use.ranks[3].pipeline_rank, 1);
}

TEST(PipelineUse, AreMediansOfTheStepsAfterWarmUp) {
  RunTrace run = TwoRanks();  // 20 steps
  for (RankTrace& rank : run.ranks) {
    for (ScheduleRecord& r : rank.schedules) {
      if (r.step <= 10) r.busy_seconds = 0;        // warm-up
      if (r.step == 20) r.schedule_seconds = 100;  // an outlier
    }
  }
  const PipelineUse use = Measure(run);
  EXPECT_NEAR(use.wall_bubble, 1 - 0.03 / 0.08, 1e-12);
  EXPECT_NEAR(use.schedule_seconds, 0.08, 1e-12);
  EXPECT_NEAR(use.ranks[0].idle_share, 1 - 0.03 / 0.08, 1e-12);
}

TEST(PipelineUse, StepsWithoutAPredictionDoNotCount) {
  EXPECT_NEAR(Measure(TwoRanks(), 0).predicted_seconds, 0.07, 1e-12);
  RunTrace run = TwoRanks();
  for (RankTrace& rank : run.ranks) {
    for (ScheduleRecord& r : rank.schedules) r.predicted_seconds = NAN;
  }
  const PipelineUse use = Measure(run);
  EXPECT_TRUE(std::isnan(use.predicted_seconds));
  EXPECT_NEAR(use.predicted_wall_bubble, 0.6, 1e-12);
}

TEST(PipelineUse, TransfersAreSpreadOverTheBoundaries) {
  const RunTrace run =
      MakeRun({.binary = "pipeline", .world_size = 4, .schedule = "gpipe"});
  const PipelineUse use = Measure(run);  // 4 ranks send across 3 boundaries
  EXPECT_NEAR(use.boundary_transfer_seconds, 4 * 0.002 / 3, 1e-12);
  EXPECT_NEAR(use.boundary_bytes, 4000.0 / 3, 1e-9);
}

TEST(PipelineUse, OneProcessWithSeveralDevices) {
  RunTrace run = TwoRanks();
  run.ranks[0].run.world_size = 1;
  for (ScheduleRecord record : run.ranks[1].schedules) {
    record.rank = 0;
    run.ranks[0].schedules.push_back(record);
  }
  run.ranks.pop_back();
  EXPECT_EQ(Measure(run).ranks.size(), 2u);
}

TEST(PipelineUse, RefusesWhatItCannotMeasure) {
  EXPECT_THAT(WhyNot(MakeRun({})), HasSubstr("run.jsonl: the run has no "
                                             "schedule records"));
  RunTrace run = TwoRanks();
  run.ranks[1].schedules.pop_back();
  EXPECT_THAT(WhyNot(run), HasSubstr("step 20 has the schedule records of 1 "
                                     "places in its pipelines, of 2"));
  run = TwoRanks();
  run.ranks[1].schedules[15].pipeline_rank = 0;
  EXPECT_THAT(WhyNot(run), HasSubstr("step 16 has two schedule records of "
                                     "replica 0, pipeline rank 0"));
  run = TwoRanks();
  run.ranks[1].schedules[15].schedule = "gpipe";
  EXPECT_THAT(WhyNot(run), HasSubstr("step 16 ran different schedules"));
  run = TwoRanks();
  run.ranks[1].schedules[15].span_seconds = 0;
  EXPECT_THAT(WhyNot(run), HasSubstr("step 16 on rank 1 took no time"));
  EXPECT_THAT(WhyNot(MakeRun({.binary = "pipeline",
                              .world_size = 2,
                              .steps = 10,
                              .schedule = "1f1b"})),
              HasSubstr("no step is left after warm-up"));
}

}  // namespace
}  // namespace rankwise
