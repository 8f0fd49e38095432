#include "analysis/prediction/pipeline_step.h"

#include "gtest/gtest.h"

namespace rankwise {
namespace {

Span At(int stage, ActionKind kind, double start, double end) {
  Span span;
  span.action.stage = stage;
  span.action.kind = kind;
  span.start_seconds = start;
  span.end_seconds = end;
  return span;
}

// Rank 0: F 0-1, B 4-6. Rank 1: F 1-2, B 2-4.
Timeline TwoRanks() {
  return {
      {{At(0, ActionKind::kForward, 0, 1), At(0, ActionKind::kBackward, 4, 6)},
       {At(1, ActionKind::kForward, 1, 2),
        At(1, ActionKind::kBackward, 2, 4)}}};
}

TEST(PipelineStep, IsTheSpanOfTheLongestRankAndWhatItDoesOutside) {
  const PipelineTimes times =
      PipelineStep(TwoRanks(), 1, {{}, {}}, std::vector<double>{0.5, 0.5});
  EXPECT_DOUBLE_EQ(times.step_seconds, 6.5);
  EXPECT_DOUBLE_EQ(times.bubble_seconds, 3);
  EXPECT_EQ(times.exposed_comm_seconds, 0);
}

TEST(PipelineStep, ARankThatDoesMuchOutsideSetsThePace) {
  const PipelineTimes times =
      PipelineStep(TwoRanks(), 1, {{}, {}}, std::vector<double>{0.5, 7});
  EXPECT_DOUBLE_EQ(times.step_seconds, 10);  // 1 to 4, and 7
  EXPECT_DOUBLE_EQ(times.bubble_seconds, 0);
}

TEST(PipelineStep, WhatStretchingAddsIsBubble) {
  const PipelineTimes times =
      PipelineStep(TwoRanks(), 1.5, {{}, {}}, std::vector<double>{0.5, 0.5});
  EXPECT_DOUBLE_EQ(times.step_seconds, 9.5);
  EXPECT_DOUBLE_EQ(times.bubble_seconds, 6);  // 9 - 3
}

TEST(PipelineStep, AShortenedTimelineHasNoNegativeBubble) {
  const PipelineTimes times =
      PipelineStep(TwoRanks(), 0.25, {{}, {}}, std::vector<double>{0.5, 0.5});
  EXPECT_DOUBLE_EQ(times.step_seconds, 2);
  EXPECT_EQ(times.bubble_seconds, 0);
}

TEST(PipelineStep, GradientsOfTheLastStageAreExposed) {
  // Both ranks wait 2 s for their stage's average; rank 0's counts.
  const PipelineTimes times =
      PipelineStep(TwoRanks(), 1, {{2}, {2}}, std::vector<double>{0.5, 0.5});
  EXPECT_DOUBLE_EQ(times.step_seconds, 8.5);
  EXPECT_DOUBLE_EQ(times.exposed_comm_seconds, 2);
}

TEST(PipelineStep, EarlierStagesHideBehindLaterOnes) {
  // One rank, two stages: the gradients of stage 1 are there at 3, those of
  // stage 0 at 5. 1 s from 3 hides; 1 s from 5 does not.
  const Timeline timeline = {
      {{At(0, ActionKind::kForward, 0, 1), At(1, ActionKind::kForward, 1, 2),
        At(1, ActionKind::kBackward, 2, 3), At(0, ActionKind::kInputGrad, 3, 4),
        At(0, ActionKind::kWeightGrad, 4, 5)}}};
  const std::vector<double> outside = {0};
  EXPECT_DOUBLE_EQ(
      PipelineStep(timeline, 1, {{1, 1}}, outside).exposed_comm_seconds, 1);
  // 4 s from 3 to 7, then 1 s.
  EXPECT_DOUBLE_EQ(
      PipelineStep(timeline, 1, {{4, 1}}, outside).exposed_comm_seconds, 3);
}

}  // namespace
}  // namespace rankwise
