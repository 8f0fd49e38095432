#include "comm_bench/order_statistics.h"

#include <numeric>
#include <vector>

#include "gtest/gtest.h"

namespace rankwise::comm_bench {
namespace {

// 1, 2, ..., size.
std::vector<double> Ranks(int size) {
  std::vector<double> ranks(size);
  std::iota(ranks.begin(), ranks.end(), 1);
  return ranks;
}

TEST(OrderStatisticsTest, QuantilesInterpolate) {
  const std::vector<double> sorted = {1, 2, 4, 8};
  EXPECT_EQ(QuantileOfSorted(sorted, 0), 1);
  EXPECT_EQ(QuantileOfSorted(sorted, 0.5), 3);
  EXPECT_NEAR(QuantileOfSorted(sorted, 0.9), 6.8, 1e-12);
  EXPECT_EQ(QuantileOfSorted(sorted, 1), 8);
  EXPECT_EQ(QuantileOfSorted(std::vector<double>{5}, 0.3), 5);
  EXPECT_EQ(Median({8, 1, 4}), 4);
}

struct Case {
  int size;
  double low, high;  // as ranks, from 1
};

// Le Boudec 2010, table A.1.
TEST(OrderStatisticsTest, IntervalsAreThoseOfTheTable) {
  for (const Case& c : std::vector<Case>{{1, 1, 1},
                                         {2, 1, 2},
                                         {5, 1, 5},
                                         {6, 1, 6},
                                         {8, 1, 8},
                                         {9, 2, 8},
                                         {12, 3, 10},
                                         {20, 6, 15},
                                         {30, 10, 21},
                                         {50, 18, 33},
                                         {70, 27, 44},
                                         {100, 40, 61}}) {
    const MedianInterval interval = IntervalOfMedian(Ranks(c.size));
    EXPECT_EQ(interval.low, c.low) << c.size;
    EXPECT_EQ(interval.high, c.high) << c.size;
  }
}

TEST(OrderStatisticsTest, LargeSamplesGiveNarrowIntervals) {
  const MedianInterval interval = IntervalOfMedian(Ranks(10000));
  EXPECT_EQ(interval.low, 4902);
  EXPECT_EQ(interval.high, 5099);
}

}  // namespace
}  // namespace rankwise::comm_bench
