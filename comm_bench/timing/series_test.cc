#include "comm_bench/timing/series.h"

#include <cstddef>
#include <vector>

#include "comm_bench/timing/series_for_test.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rankwise::comm_bench {
namespace {

using testing::DoubleEq;
using testing::ElementsAre;
using testing::IsEmpty;

// Two ranks; rank 1 starts 1 s after rank 0 in iteration 0, and before it in
// iteration 1.
Series TwoRanks() { return SeriesOfRanks({{5, 4}, {3, 7}}, {{0, 10}, {1, 8}}); }

TEST(SeriesTest, CombinesRanksAsNamed) {
  const Series series = TwoRanks();
  EXPECT_THAT(Combine(series, Across::kSlowest), ElementsAre(5, 7));
  EXPECT_THAT(Combine(series, Across::kTransfer), ElementsAre(4, 5));
  EXPECT_THAT(Combine(series, Across::kMakespan), ElementsAre(5, 7));
  EXPECT_THAT(Combine(series, Across::kMean), ElementsAre(4, 5.5));
}

TEST(SeriesTest, LateIterationsAreLeftOut) {
  Series series = TwoRanks();
  series.late = {0};
  EXPECT_THAT(Combine(series, Across::kSlowest), ElementsAre(7));
  const Summary summary = Summarize(series, Across::kSlowest);
  EXPECT_EQ(summary.samples, 1);
  EXPECT_EQ(summary.late, 1);
  EXPECT_EQ(summary.skew, 2);
}

TEST(SeriesTest, NothingThatCountsGivesZeros) {
  Series series = TwoRanks();
  series.late = {0, 1};
  const Summary summary = Summarize(series, Across::kTransfer);
  EXPECT_EQ(summary.samples, 0);
  EXPECT_EQ(summary.late, 2);
  EXPECT_EQ(summary.median, 0);
  EXPECT_EQ(Summarize(Series(), Across::kSlowest).samples, 0);
}

TEST(SeriesTest, QuantilesOfOneToHundred) {
  std::vector<double> seconds;
  // alternating, as a trend would be autocorrelated
  for (int i = 0; i < 50; ++i)
    seconds.insert(seconds.end(), {100.0 - i, 1.0 + i});
  const Series series = SeriesOfRanks({seconds}, {std::vector<double>(100, 0)});
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

// Two ranks whose iterations take `seconds`; rank 0 starts at 0, 1, 2, ...,
// rank 1 with these delays.
Series WithDelays(const std::vector<double>& delays, double seconds,
                  const std::vector<double>& arrival_seconds = {}) {
  std::vector<std::vector<double>> starts(2);
  for (size_t i = 0; i < delays.size(); ++i) {
    starts[0].push_back(i);
    starts[1].push_back(i + delays[i]);
  }
  return SeriesOfRanks({2, std::vector<double>(delays.size(), seconds)}, starts,
                       arrival_seconds);
}

TEST(LateStartsTest, FarMoreThanTheUsualSpreadIsLate) {
  const Series series = WithDelays({1e-3, 2e-3, -1e-3, 50e-3, 1e-3}, 5e-3);
  EXPECT_THAT(LeftBarrierLate(series), ElementsAre(3));
}

TEST(LateStartsTest, LessThanAnIterationTakesIsNotLate) {
  const Series series = WithDelays({1e-3, 2e-3, -1e-3, 50e-3, 1e-3}, 0.1);
  EXPECT_THAT(LeftBarrierLate(series), IsEmpty());
}

TEST(LateStartsTest, WhatTheClocksMayHaveMadeIsNotLate) {
  Series series = WithDelays({1e-3, 2e-3, -1e-3, 50e-3, 1e-3}, 5e-3);
  series.clock_error_seconds = 30e-3;
  EXPECT_THAT(LeftBarrierLate(series), IsEmpty());
}

TEST(LateStartsTest, DeliberateArrivalsAreNotLate) {
  const Series series = WithDelays({0.1, 0.1, 0.1, 0.2, 0.1}, 5e-3, {0, 0.1});
  EXPECT_THAT(LeftBarrierLate(series), ElementsAre(3));
  EXPECT_THAT(MissedWindows(series, {0, 1, 2, 3, 4}), ElementsAre(3));
}

TEST(LateStartsTest, AWindowIsMissedByATenthOfAnIteration) {
  const Series series = WithDelays({0, 0.9e-3, 1.1e-3}, 10e-3);
  EXPECT_THAT(MissedWindows(series, {0, 1, 2}), ElementsAre(2));
  const Series quick = WithDelays({0, 40e-6, 60e-6}, 10e-6);
  EXPECT_THAT(MissedWindows(quick, {0, 1, 2}), ElementsAre(2));
}

TEST(LateStartsTest, NothingIsLateInNothing) {
  EXPECT_THAT(LeftBarrierLate(Series()), IsEmpty());
  EXPECT_THAT(MissedWindows(Series(), {}), IsEmpty());
}

}  // namespace
}  // namespace rankwise::comm_bench
