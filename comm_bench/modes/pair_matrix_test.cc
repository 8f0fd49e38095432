#include "comm_bench/modes/pair_matrix.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <set>
#include <utility>
#include <vector>

#include "comm_bench/timing/series.h"
#include "gtest/gtest.h"
#include "parallel/comm/rank_threads_for_test.h"
#include "parallel/comm/test_ranks.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace rankwise::comm_bench {
namespace {

const double kNone = std::numeric_limits<double>::quiet_NaN();

PairMatrix WithLatencies(const std::vector<std::vector<double>>& seconds) {
  PairMatrix matrix;
  matrix.latency_seconds = matrix.bandwidth_gb_per_s = seconds;
  matrix.latency_reach = matrix.bandwidth_reach =
      std::vector<std::vector<double>>(
          seconds.size(), std::vector<double>(seconds.size(), kNone));
  return matrix;
}

TEST(RoundsOfPairsTest, EveryPairOnceAndNoRankTwiceInARound) {
  for (const int ranks : {1, 2, 3, 4, 7, 8, 64, 1024}) {
    const auto rounds = RoundsOfPairs(ranks);
    EXPECT_EQ(rounds.size(), ranks + ranks % 2 - 1);
    std::set<std::pair<int, int>> met;
    for (const std::vector<RankPair>& round : rounds) {
      std::set<int> busy;
      for (const RankPair& pair : round) {
        EXPECT_LT(pair.low, pair.high);
        EXPECT_LT(pair.high, ranks);
        EXPECT_TRUE(met.emplace(pair.low, pair.high).second);
        EXPECT_TRUE(busy.insert(pair.low).second);
        EXPECT_TRUE(busy.insert(pair.high).second);
      }
      EXPECT_EQ(round.size(), static_cast<size_t>(ranks / 2));
    }
    EXPECT_EQ(met.size(), static_cast<size_t>(ranks) * (ranks - 1) / 2);
  }
}

TEST(PairMatrixTest, EveryRankGetsEveryPairOverGloo) {
  OnRanks(3, [&](Communicator& communicator) {
    auto control = MakeGroupControl(communicator.process_group());
    const auto matrix = MeasurePairs(*communicator.process_group(), *control,
                                     {.warmup = 1, .iterations = 3});
    ASSERT_EQ(matrix.world_size(), 3);
    double sum = 0;
    for (int i = 0; i < 3; ++i) {
      EXPECT_TRUE(std::isnan(matrix.latency_seconds[i][i]));
      for (int j = 0; j < i; ++j) {
        EXPECT_GT(matrix.latency_seconds[i][j], 0);
        EXPECT_GT(matrix.bandwidth_gb_per_s[i][j], 0);
        EXPECT_EQ(matrix.latency_seconds[i][j], matrix.latency_seconds[j][i]);
        sum += matrix.latency_seconds[i][j];
      }
    }
    for (const auto& other : control->Gather({sum})) {
      EXPECT_EQ(other[0], sum);
    }
    EXPECT_EQ(matrix.pairs, 3);
    EXPECT_FALSE(matrix.stopped);
  });
}

TEST(PairMatrixTest, TheLowerRankKeepsTheRoundTrips) {
  OnFakeRanks(2, {}, [](FakeRank& rank) {
    const auto matrix = MeasurePairs(
        *rank.group, rank.control,
        {.latency_bytes = 4, .bandwidth_bytes = 64, .iterations = 1});
    if (rank.control.rank() == 1) {
      EXPECT_TRUE(matrix.samples.empty());
      return;
    }
    ASSERT_EQ(matrix.samples.size(), 2u);
    EXPECT_EQ(matrix.samples[0].bytes, 4);
    EXPECT_EQ(matrix.samples[1].bytes, 64);
    EXPECT_EQ(matrix.samples[0].seconds[0], 2 * matrix.latency_seconds[0][1]);
  });
}

TEST(PairMatrixTest, AStopLeavesTheRestOpen) {
  OnFakeRanks(3, {}, [](FakeRank& rank) {
    const std::atomic<bool> stop = rank.control.rank() == 2;
    const auto matrix = MeasurePairs(*rank.group, rank.control,
                                     {.warmup = 0, .iterations = 1}, &stop);
    EXPECT_TRUE(matrix.stopped);
    EXPECT_EQ(matrix.pairs, 1);
    EXPECT_GT(matrix.latency_seconds[0][1], 0);
    EXPECT_TRUE(std::isnan(matrix.latency_seconds[0][2]));
    EXPECT_TRUE(std::isnan(matrix.bandwidth_gb_per_s[1][2]));
  });
}

TEST(PairMatrixTest, TheStragglerIsTheRankAllOfWhosePairsAreSlow) {
  const auto straggler = FindStraggler(WithLatencies({{kNone, 5, 1, 1},
                                                      {5, kNone, 6, 5},
                                                      {1, 6, kNone, 2},
                                                      {1, 5, 2, kNone}}));
  ASSERT_TRUE(straggler.has_value());
  EXPECT_EQ(straggler->rank, 1);
  EXPECT_EQ(straggler->delay_seconds, 4);
}

TEST(PairMatrixTest, OneSlowPairIsNoStraggler) {
  const auto straggler = FindStraggler(WithLatencies({{kNone, 5, 1, 1},
                                                      {5, kNone, 1, 1},
                                                      {1, 1, kNone, 1},
                                                      {1, 1, 1, kNone}}));
  EXPECT_FALSE(straggler.has_value());
}

TEST(PairMatrixTest, PairsNotReachedSayNothing) {
  const auto straggler = FindStraggler(WithLatencies(
      {{kNone, 5, kNone}, {5, kNone, kNone}, {kNone, kNone, kNone}}));
  EXPECT_FALSE(straggler.has_value());
}

TEST(PairMatrixTest, TwoRanksHaveNoStraggler) {
  EXPECT_FALSE(
      FindStraggler(WithLatencies({{kNone, 5}, {5, kNone}})).has_value());
}

TEST(PairMatrixTest, ReadsAsTables) {
  PairMatrix matrix = WithLatencies({{kNone, 45e-6}, {45e-6, kNone}});
  matrix.bandwidth_gb_per_s = {{kNone, 1.5}, {1.5, kNone}};
  matrix.latency_reach[0][1] = matrix.latency_reach[1][0] = 0.0123;
  EXPECT_EQ(FormatPairMatrix(matrix),
            "latency, us (half round trip), +- its 95 % interval\n"
            "  rank         0                 1\n"
            "     0                 -     45.00 +- 1.2%\n"
            "     1     45.00 +- 1.2%                 -\n"
            "bandwidth, GB/s, +- its 95 % interval\n"
            "  rank         0                 1\n"
            "     0                 -      1.50\n"
            "     1      1.50                         -\n");
}

// All ranks get the intervals of the lower rank's round trips.
TEST(PairMatrixTest, AMedianHasTheIntervalOfItsRoundTrips) {
  OnRanks(2, [](Communicator& communicator) {
    auto control = MakeGroupControl(communicator.process_group());
    const auto matrix = MeasurePairs(*communicator.process_group(), *control,
                                     {.iterations = 20});
    std::vector<double> own(2, 0);
    if (control->rank() == 0) {
      const Estimate latency = EstimateMedian(matrix.samples[0].seconds);
      const Estimate trip = EstimateMedian(matrix.samples[1].seconds);
      own = {latency.reach() / latency.value,
             std::max(trip.value / trip.low - 1, 1 - trip.value / trip.high)};
    }
    const std::vector<double> expected = control->Gather(own)[0];
    EXPECT_GT(expected[0], 0);
    EXPECT_NEAR(matrix.latency_reach[0][1], expected[0], 1e-9);
    EXPECT_NEAR(matrix.latency_reach[1][0], expected[0], 1e-9);
    EXPECT_NEAR(matrix.bandwidth_reach[0][1], expected[1], 1e-9);
  });
}

}  // namespace
}  // namespace rankwise::comm_bench
