#include "comm_bench/timing/summary.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rankwise::comm_bench {
namespace {

using testing::DoubleEq;
using testing::ElementsAre;

// Two ranks; rank 1 starts 1 s after rank 0 in iteration 0, before it in
// iteration 1.
Series TwoRanks() {
  Series series;
  series.start_seconds = {{0, 10}, {1, 8}};
  series.seconds = {{5, 4}, {3, 7}};
  return series;
}

TEST(SummaryTest, CombinesRanksAsNamed) {
  const Series series = TwoRanks();
  EXPECT_THAT(Combine(series, Across::kSlowest), ElementsAre(5, 7));
  EXPECT_THAT(Combine(series, Across::kTransfer), ElementsAre(4, 5));
  EXPECT_THAT(Combine(series, Across::kMakespan), ElementsAre(5, 7));
  EXPECT_THAT(Combine(series, Across::kMean), ElementsAre(4, 5.5));
}

TEST(SummaryTest, LateIterationsAreLeftOut) {
  Series series = TwoRanks();
  series.late = {0};
  EXPECT_THAT(Combine(series, Across::kSlowest), ElementsAre(7));
  const Summary summary = Summarize(series, Across::kSlowest);
  EXPECT_EQ(summary.samples, 1);
  EXPECT_EQ(summary.late, 1);
  EXPECT_EQ(summary.skew, 2);
}

TEST(SummaryTest, NothingThatCountsGivesZeros) {
  Series series = TwoRanks();
  series.late = {0, 1};
  const Summary summary = Summarize(series, Across::kTransfer);
  EXPECT_EQ(summary.samples, 0);
  EXPECT_EQ(summary.late, 2);
  EXPECT_EQ(summary.median, 0);
  EXPECT_EQ(Summarize(Series(), Across::kSlowest).samples, 0);
}

TEST(SummaryTest, QuantilesOfOneToHundred) {
  Series series;
  series.seconds.resize(1);
  series.start_seconds.resize(1);
  for (int i = 100; i >= 1; --i) {
    series.seconds[0].push_back(i);
    series.start_seconds[0].push_back(0);
  }
  const Summary summary = Summarize(series, Across::kSlowest);
  EXPECT_EQ(summary.min, 1);
  EXPECT_EQ(summary.median, 50.5);
  EXPECT_THAT(summary.p95, DoubleEq(95.05));
  EXPECT_THAT(summary.p99, DoubleEq(99.01));
  EXPECT_EQ(summary.max, 100);
  EXPECT_EQ(summary.median_low, 40);
  EXPECT_EQ(summary.median_high, 61);
  EXPECT_EQ(summary.skew, 0);
}

}  // namespace
}  // namespace rankwise::comm_bench
