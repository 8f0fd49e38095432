#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "analysis/runs/run_trace.h"

namespace rankwise {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

// Returns a rank with steps of `seconds` each and losses that fall by 1 from
// `first`.
RankTrace Rank(int64_t rank, double seconds, double first, int64_t examples,
               int64_t steps) {
  RankTrace trace;
  trace.run.rank = rank;
  for (int64_t step = 1; step <= steps; ++step) {
    StepRecord record;
    record.rank = rank;
    record.step = step;
    record.loss = first - static_cast<double>(step - 1);
    record.step_seconds = seconds;
    record.examples = examples;
    trace.steps.push_back(record);
  }
  return trace;
}

TEST(SecondsToLoss, IsWhenTheMeanOfTenStepsIsThere) {
  RunTrace run;
  run.ranks.push_back(Rank(0, 0.5, 20, 8, 20));  // 20, 19, ..., 1
  EXPECT_EQ(SecondsToLoss(run, 15.5), 5);        // 20 to 11
  EXPECT_EQ(SecondsToLoss(run, 15.4), 5.5);
  EXPECT_EQ(SecondsToLoss(run, 5.5), 10);
  EXPECT_TRUE(std::isnan(SecondsToLoss(run, 5.4)));
  EXPECT_TRUE(std::isnan(SecondsToLoss(RunTrace(), 1)));
}

TEST(SecondsToLoss, ALossThatIsNotFiniteCountsForTenSteps) {
  for (double loss : {std::nan(""), HUGE_VAL, -HUGE_VAL}) {
    RunTrace run;
    run.ranks.push_back(Rank(0, 0.5, 20, 8, 20));
    run.ranks[0].steps[2].loss = loss;
    EXPECT_EQ(SecondsToLoss(run, 15.5), 6.5);  // steps 4 to 13
    EXPECT_EQ(SecondsToLoss(run, 5.5), 10);
  }
}

TEST(SecondsToLoss, TakesAllRanksThatTrainInTheOrderOfTime) {
  RunTrace run;
  run.ranks.push_back(Rank(0, 0.01, 0, 0, 20));  // a server
  run.ranks.push_back(Rank(1, 1, 30, 8, 20));
  run.ranks.push_back(Rank(2, 2, 30, 8, 10));  // half as fast
  // In second 14 the first worker ends its 14th step (30 to 17), then the other
  // its 7th (30 to 24): the window excludes the first of these 21 steps.
  const double mean = (14 * 23.5 + 7 * 27 - 30) / 20;
  EXPECT_EQ(SecondsToLoss(run, mean + 1e-9), 14);
  EXPECT_EQ(SecondsToLoss(run, mean - 1e-9), 15);
}

TEST(ConcurrentExamplesPerSecond, IsTheSumOfTheRanksPaces) {
  RunTrace run;
  run.ranks.push_back(Rank(0, 0.01, 0, 0, 20));  // a server
  run.ranks.push_back(Rank(1, 1, 30, 8, 20));
  run.ranks.push_back(Rank(2, 2, 30, 8, 20));
  run.ranks[1].steps[0].step_seconds = 100;  // the first step does not count
  EXPECT_DOUBLE_EQ(ConcurrentExamplesPerSecond(run), 12);
  EXPECT_EQ(ConcurrentExamplesPerSecond(RunTrace()), 0);
}

TEST(StalenessOf, CountsRoundsAndUpdatesOfAllShards) {
  RunTrace run;
  run.ranks.resize(2);
  // worker, round, read_round, version, read_version, loss
  run.ranks[0].updates = {{0, 1, 2, 1, 0, 1, 0, 3.0},
                          {0, 1, 3, 1, 0, 2, 0, 3.0},
                          {0, 2, 2, 4, 1, 3, 1, 3.0}};
  run.ranks[1].updates = {{1, 1, 2, 1, 0, 1, 0, 3.0}};
  const Staleness staleness = StalenessOf(run);
  EXPECT_THAT(staleness.rounds, ElementsAre(Pair(0, 3), Pair(2, 1)));
  EXPECT_THAT(staleness.updates, ElementsAre(Pair(0, 2), Pair(1, 2)));
  EXPECT_TRUE(StalenessOf(RunTrace()).rounds.empty());
}

}  // namespace
}  // namespace rankwise
