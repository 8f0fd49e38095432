#include <random>

#include "analysis/prediction/recordings.h"
#include "gtest/gtest.h"

namespace rankwise {
namespace {

using Runs = std::vector<std::vector<StepSample>>;

StepSample Sure(double seconds) { return {{seconds}, {seconds}, {seconds}}; }

std::vector<StepSample> Normal(double mean, double deviation, int count,
                               uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal(mean, deviation);
  std::vector<StepSample> run;
  for (int i = 0; i < count; ++i) run.push_back(Sure(normal(random)));
  return run;
}

TEST(EstimateStep, OneRankTakesTheMedian) {
  const Runs runs = {{Sure(1), Sure(2), Sure(9)}};
  const StepEstimate estimate = EstimateStep(runs, 1);
  EXPECT_EQ(estimate.step_seconds, 2);
  EXPECT_EQ(estimate.noise_seconds, 0);
}

TEST(EstimateStep, RunsCountAlikeHoweverLong) {
  const Runs runs = {Normal(1, 0, 5, 0), Normal(2, 0, 500, 0),
                     Normal(3, 0, 5, 0)};
  EXPECT_EQ(EstimateStep(runs, 1).step_seconds, 2);
}

TEST(EstimateStep, TheSlowestOfManySetsThePace) {
  // The median of the largest of n normal values is at the 0.5^(1/n) quantile:
  // 0.5450 deviations for n = 2, 1.7286 for 16.
  const Runs runs = {Normal(1, 0.1, 500, 1), Normal(1, 0.1, 500, 2),
                     Normal(1, 0.1, 500, 3), Normal(1, 0.1, 500, 4)};
  EXPECT_NEAR(EstimateStep(runs, 2).step_seconds, 1.0545, 0.01);
  EXPECT_NEAR(EstimateStep(runs, 16).step_seconds, 1.1729, 0.015);
}

TEST(EstimateStep, WhatRunsDifferByIsNotNoiseOfSteps) {
  const Runs runs = {Normal(1, 0, 50, 0), Normal(2, 0, 50, 0),
                     Normal(3, 0, 50, 0)};
  EXPECT_EQ(EstimateStep(runs, 64).noise_seconds, 0);
}

TEST(EstimateStep, SameStepsGiveNoInterval) {
  const StepEstimate estimate = EstimateStep(Runs{{Sure(2), Sure(2)}}, 8);
  EXPECT_EQ(estimate.step_interval.low, 2);
  EXPECT_EQ(estimate.step_interval.high, 2);
}

TEST(EstimateStep, IntervalHoldsTheCostsOfCommunication) {
  const Runs runs = {
      std::vector<StepSample>(50, {{1, 0.3, 0.1}, {0.9}, {1.2}})};
  const StepEstimate estimate = EstimateStep(runs, 1);
  EXPECT_NEAR(estimate.step_interval.low, 0.9, 0.02);
  EXPECT_NEAR(estimate.step_interval.high, 1.2, 0.04);
  EXPECT_EQ(estimate.exposed_comm_seconds, 0.3);
  EXPECT_EQ(estimate.bubble_seconds, 0.1);
}

TEST(EstimateStep, IntervalHoldsTheModelsOwnError) {
  const Runs runs = {std::vector<StepSample>(50, Sure(2))};
  for (const auto& [configurations, t] : {std::pair(4, 2.776), {100, 1.984}}) {
    const StepEstimate estimate =
        EstimateStep(runs, 1, {configurations, 0.1, configurations});
    EXPECT_EQ(estimate.step_seconds, 2);
    EXPECT_NEAR(estimate.step_interval.low, 2 - t * 0.2, 0.15);
    EXPECT_NEAR(estimate.step_interval.high, 2 + t * 0.2, 0.15);
  }
}

TEST(EstimateStep, EqualInputGivesEqualIntervals) {
  const Runs runs = {Normal(1, 0.1, 50, 1), Normal(1.1, 0.1, 50, 2)};
  EXPECT_EQ(EstimateStep(runs, 4).step_interval.low,
            EstimateStep(runs, 4).step_interval.low);
}

// Runs differ by 3 %, steps by 10 %: the interval from 4 runs must contain the
// median of a fifth in about 95 of 100 studies.
TEST(EstimateStep, IntervalCoversARunToCome) {
  std::mt19937_64 random(11);
  std::normal_distribution<double> of_run(1, 0.03);
  constexpr int kStudies = 200;
  int covered = 0;
  for (int study = 0; study < kStudies; ++study) {
    Runs runs;
    for (int i = 0; i < 5; ++i) {
      runs.push_back(Normal(of_run(random), 0.1, 41, random()));
    }
    std::vector<double> next;
    for (const StepSample& step : runs.back())
      next.push_back(step.middle.step_seconds);
    runs.pop_back();
    const Interval interval = EstimateStep(runs, 1).step_interval;
    const double truth = Median(next);
    covered += truth >= interval.low && truth <= interval.high;
  }
  EXPECT_GE(covered, kStudies * 0.90);
  EXPECT_LE(covered, kStudies * 0.995);
}

}  // namespace
}  // namespace rankwise
