#include "analysis/runs/throughput.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "analysis/runs/trace_for_test.h"

namespace rankwise {
namespace {

using ::testing::HasSubstr;

Throughput Measured(const RunTrace& run, int64_t warmup_steps = 10) {
  const auto result = MeasureThroughput(run, {warmup_steps});
  EXPECT_TRUE(result.ok()) << result.status();
  return result.value_or(Throughput());
}

std::string Refusal(const RunTrace& run, int64_t warmup_steps = 10) {
  return std::string(MeasureThroughput(run, {warmup_steps}).status().message());
}

TEST(Throughput, CountsAllRanksExamples) {
  const Throughput result = Measured(
      MakeRun({.world_size = 2, .batch_size = 32, .step_seconds = 0.1}));
  EXPECT_NEAR(result.examples_per_second, 640, 1e-9);
  EXPECT_NEAR(result.step_seconds, 0.1, 1e-12);
  EXPECT_NEAR(result.comm_wait_share, 0.1, 1e-12);
  EXPECT_NEAR(result.data_wait_share, 0.05, 1e-12);
  EXPECT_EQ(result.steps, 10);
  EXPECT_EQ(result.global_batch, 64);
  EXPECT_EQ(result.largest_rank_batch, 32);
}

TEST(Throughput, CountsTheExamplesOfAPipelineOnce) {
  // 2 micro-batches of 16, reported by both ranks.
  const Throughput one = Measured(MakeRun({.binary = "pipeline",
                                           .world_size = 2,
                                           .batch_size = 16,
                                           .step_seconds = 0.1,
                                           .schedule = "1f1b",
                                           .micro_batches = 2}));
  EXPECT_NEAR(one.examples_per_second, 320, 1e-9);
  EXPECT_EQ(one.global_batch, 32);
  EXPECT_EQ(one.largest_rank_batch, 16);
}

TEST(Throughput, CountsEveryReplicaOfAPipeline) {
  const Throughput two = Measured(MakeRun({.binary = "pipeline",
                                           .world_size = 6,
                                           .batch_size = 16,
                                           .step_seconds = 0.1,
                                           .schedule = "1f1b",
                                           .replicas = 2,
                                           .micro_batches = 2}));
  EXPECT_NEAR(two.examples_per_second, 640, 1e-9);
  EXPECT_EQ(two.global_batch, 64);
  EXPECT_NEAR(two.largest_rank_batch, 32.0 / 3, 1e-12);
}

TEST(Throughput, WhatRanksWaitedWithinCapturedStepsIsNotKnown) {
  RunTrace run = MakeRun({.world_size = 2});
  CaptureSteps(run);
  for (RankTrace& rank : run.ranks) rank.steps.back().captured_seconds = 0.05;
  const Throughput two = Measured(run);
  EXPECT_TRUE(two.captured);
  EXPECT_TRUE(std::isnan(two.comm_wait_share));
  EXPECT_NEAR(two.data_wait_share, 0.05, 1e-12);
  run.ranks.resize(1);
  run.ranks[0].run.world_size = 1;
  const Throughput one = Measured(run);
  EXPECT_EQ(one.comm_wait_share, 0);
}

TEST(Throughput, WhatRanksAreLateByInTurnDoesNotAddUp) {
  RunTrace run = MakeRun({.world_size = 2, .step_seconds = 0.2, .steps = 11});
  for (int i = 0; i < 10; ++i) {
    // Each rank ends every other step 0.1 s late, which delays its next start.
    run.ranks[i % 2].steps[i].step_seconds = 0.3;
    run.ranks[1 - i % 2].steps[i].step_seconds = 0.1;
  }
  const Throughput result = Measured(run, 0);
  EXPECT_NEAR(result.examples_per_second, 128 / 0.2, 1e-9);
  EXPECT_NEAR(result.step_seconds, 0.2, 1e-12);
}

TEST(Throughput, TheJobTakesTheLargestSumOfOneRank) {
  RunTrace run = MakeRun({.world_size = 3, .step_seconds = 0.1, .steps = 10});
  for (int i = 0; i < 10; ++i) {
    run.ranks[1].steps[i].step_seconds = i < 6 ? 0.3 : 0.05;
    run.ranks[2].steps[i].step_seconds = i < 6 ? 0.05 : 0.2;
  }
  const Throughput result = Measured(run, 0);
  EXPECT_NEAR(result.examples_per_second, 10 * 192 / (6 * 0.3 + 4 * 0.05),
              1e-9);
  EXPECT_NEAR(result.step_seconds, 0.3, 1e-12);
}

TEST(Throughput, IsARatioOfSums) {
  RunTrace run = MakeRun({.step_seconds = 0.1, .steps = 10});
  run.ranks[0].steps[9].step_seconds = 1.1;
  EXPECT_NEAR(Measured(run, 0).examples_per_second, 640 / 2.0, 1e-9);
}

TEST(Throughput, WarmUpIsLeftOut) {
  RunTrace run = MakeRun({.step_seconds = 0.1, .steps = 15});
  for (int i = 0; i < 10; ++i) run.ranks[0].steps[i].step_seconds = 5;
  EXPECT_NEAR(Measured(run).examples_per_second, 640, 1e-9);
}

TEST(Throughput, RefusesWhatItCannotMeasure) {
  EXPECT_THAT(Refusal(MakeRun({.steps = 14, .run_id = "short"})),
              HasSubstr("short.jsonl: 14 steps leave 4 after 10 of warm-up, "
                        "and at least 5 are needed"));
  EXPECT_THAT(Refusal(MakeRun({.steps = 0})), HasSubstr("0 steps leave 0"));
  EXPECT_THAT(Refusal(MakeRun({.step_seconds = 0}), 0),
              HasSubstr("the steps took no time"));
  RunTrace run = MakeRun({.binary = "parameter_server", .world_size = 2});
  for (StepRecord& step : run.ranks[1].steps) step.step_seconds = 0;
  run.ranks[0].updates.emplace_back();  // a server
  EXPECT_THAT(Refusal(run, 0), HasSubstr("the steps took no time"));
  run.ranks[1].updates.emplace_back();
  EXPECT_THAT(Refusal(run, 0), HasSubstr("no rank trains"));
  run = MakeRun({.world_size = 2});
  run.ranks.pop_back();
  EXPECT_FALSE(MeasureThroughput(run, {0}).ok());
}

}  // namespace
}  // namespace rankwise
