#include <gtest/gtest.h>

#include <cmath>

#include "comm_bench/modes/overlap.h"

namespace rankwise::comm_bench {
namespace {

TEST(OverlapDefinitionsTest, FullOverlapBehindLongerComputation) {
  EXPECT_DOUBLE_EQ(OsuOverlap(10, 10, 4), 1);
  EXPECT_DOUBLE_EQ(ImbNbcOverlap(10, 10, 4), 0.4);
  const TimeSpan compute = {0, 10}, comm = {0, 4};
  EXPECT_DOUBLE_EQ(HtaOverlap(compute, comm), 1);
  EXPECT_DOUBLE_EQ(IntervalUnionOverlap(compute, comm).seconds, 4);
  EXPECT_DOUBLE_EQ(IntervalUnionOverlap(compute, comm).share, 0.4);
}

TEST(OverlapDefinitionsTest, EqualLengthsAreFullyHidden) {
  EXPECT_DOUBLE_EQ(OsuOverlap(4, 4, 4), 1);
  EXPECT_DOUBLE_EQ(ImbNbcOverlap(4, 4, 4), 1);
  EXPECT_DOUBLE_EQ(HtaOverlap({0, 4}, {0, 4}), 1);
  EXPECT_DOUBLE_EQ(IntervalUnionOverlap({0, 4}, {0, 4}).share, 1);
}

TEST(OverlapDefinitionsTest, OneAfterTheOther) {
  EXPECT_DOUBLE_EQ(OsuOverlap(14, 10, 4), 0);
  EXPECT_DOUBLE_EQ(ImbNbcOverlap(14, 10, 4), 0);
  EXPECT_DOUBLE_EQ(HtaOverlap({4, 14}, {0, 4}), 0);
  EXPECT_DOUBLE_EQ(IntervalUnionOverlap({4, 14}, {0, 4}).seconds, 0);
}

// The collective of 8 s is slowed to 10 s and ends 4 s after the computation of
// 6 s.
TEST(OverlapDefinitionsTest, PartialOverlapDiffersByDefinition) {
  EXPECT_DOUBLE_EQ(OsuOverlap(10, 6, 8), 0.5);
  EXPECT_DOUBLE_EQ(ImbNbcOverlap(10, 6, 8), 0.5);
  const TimeSpan compute = {0, 6}, comm = {0, 10};
  EXPECT_DOUBLE_EQ(HtaOverlap(compute, comm), 0.6);
  EXPECT_DOUBLE_EQ(IntervalUnionOverlap(compute, comm).seconds, 6);
  EXPECT_DOUBLE_EQ(IntervalUnionOverlap(compute, comm).share, 0.6);
}

// Concurrent, but slower than one after the other: only the definitions that
// compare runs show it.
TEST(OverlapDefinitionsTest, SlowerThanSerialIsNegativeWhereRunsAreCompared) {
  EXPECT_DOUBLE_EQ(OsuOverlap(16, 6, 8), -0.25);
  EXPECT_DOUBLE_EQ(ImbNbcOverlap(16, 6, 8), -0.25);
  EXPECT_DOUBLE_EQ(HtaOverlap({0, 16}, {0, 16}), 1);
}

TEST(OverlapDefinitionsTest, NothingIsNotANumber) {
  EXPECT_TRUE(std::isnan(HtaOverlap({0, 1}, {})));
  EXPECT_TRUE(std::isnan(OsuOverlap(1, 1, 0)));
  EXPECT_TRUE(std::isnan(IntervalUnionOverlap({}, {}).share));
}

}  // namespace
}  // namespace rankwise::comm_bench
