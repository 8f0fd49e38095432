#include "comm_bench/timing/late_starts.h"

#include <cstddef>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rankwise::comm_bench {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Two ranks whose iterations take `seconds`; rank 0 starts at 0, 1, 2, ..., and
// rank 1 so much later.
Series WithDelays(const std::vector<double>& delays, double seconds) {
  Series series;
  series.seconds.assign(2, std::vector<double>(delays.size(), seconds));
  series.start_seconds.resize(2);
  for (size_t i = 0; i < delays.size(); ++i) {
    series.start_seconds[0].push_back(i);
    series.start_seconds[1].push_back(i + delays[i]);
  }
  return series;
}

TEST(LateStartsTest, FarMoreThanTheUsualSpreadIsLate) {
  const Series series = WithDelays({1e-3, 2e-3, -1e-3, 50e-3, 1e-3}, 5e-3);
  EXPECT_THAT(LeftBarrierLate(series, {}), ElementsAre(3));
}

TEST(LateStartsTest, LessThanAnIterationTakesIsNotLate) {
  const Series series = WithDelays({1e-3, 2e-3, -1e-3, 50e-3, 1e-3}, 0.1);
  EXPECT_THAT(LeftBarrierLate(series, {}), IsEmpty());
}

TEST(LateStartsTest, WhatTheClocksMayHaveMadeIsNotLate) {
  Series series = WithDelays({1e-3, 2e-3, -1e-3, 50e-3, 1e-3}, 5e-3);
  series.clock_error_seconds = 30e-3;
  EXPECT_THAT(LeftBarrierLate(series, {}), IsEmpty());
}

TEST(LateStartsTest, DeliberateArrivalsAreNotLate) {
  const Series series = WithDelays({0.1, 0.1, 0.1, 0.2, 0.1}, 5e-3);
  EXPECT_THAT(LeftBarrierLate(series, {0, 0.1}), ElementsAre(3));
  EXPECT_THAT(MissedWindows(series, {0, 1, 2, 3, 4}, {0, 0.1}), ElementsAre(3));
}

TEST(LateStartsTest, AWindowIsMissedByATenthOfAnIteration) {
  const Series series = WithDelays({0, 0.9e-3, 1.1e-3}, 10e-3);
  EXPECT_THAT(MissedWindows(series, {0, 1, 2}, {}), ElementsAre(2));
  const Series quick = WithDelays({0, 40e-6, 60e-6}, 10e-6);
  EXPECT_THAT(MissedWindows(quick, {0, 1, 2}, {}), ElementsAre(2));
}

TEST(LateStartsTest, NothingIsLateInNothing) {
  EXPECT_THAT(LeftBarrierLate(Series(), {}), IsEmpty());
  EXPECT_THAT(MissedWindows(Series(), {}, {}), IsEmpty());
}

}  // namespace
}  // namespace rankwise::comm_bench
