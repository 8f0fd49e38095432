#include "analysis/statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace rankwise {
namespace {

TEST(Statistics, MedianOfOddEvenAndSingle) {
  EXPECT_EQ(Median({3, 1, 2}), 2);
  EXPECT_EQ(Median({4, 1, 3, 2}), 2.5);
  EXPECT_EQ(Median({7}), 7);
}

TEST(Statistics, QuantilesAreNumPys) {
  // numpy.quantile([1, 2, 4, 8, 16], [0, .1, .25, .9, 1])
  const std::vector<double> sample = {16, 1, 8, 2, 4};
  EXPECT_DOUBLE_EQ(Quantile(sample, 0), 1);
  EXPECT_DOUBLE_EQ(Quantile(sample, 0.1), 1.4);
  EXPECT_DOUBLE_EQ(Quantile(sample, 0.25), 2);
  EXPECT_DOUBLE_EQ(Quantile(sample, 0.9), 12.8);
  EXPECT_DOUBLE_EQ(Quantile(sample, 1), 16);
}

TEST(Statistics, EmptyAndNanSamplesHaveNoQuantile) {
  EXPECT_TRUE(std::isnan(Median({})));
  EXPECT_TRUE(std::isnan(Median({1, std::nan(""), 2})));
}

TEST(Statistics, InfinitiesSortToTheEnds) {
  const double inf = std::numeric_limits<double>::infinity();
  EXPECT_EQ(Median({inf, 1, 2}), 2);
  EXPECT_EQ(Quantile({1, 2, inf}, 1), inf);
}

TEST(Bootstrap, ConstantSamplesHaveAPointInterval) {
  const Interval interval = BootstrapRatioOfMedians({6, 6, 6}, {3, 3});
  EXPECT_EQ(interval.low, 2);
  EXPECT_EQ(interval.high, 2);
}

TEST(Bootstrap, EqualSeedsGiveEqualIntervals) {
  const std::vector<double> top = {9, 10, 11, 12}, bottom = {4, 5, 6};
  const Interval a = BootstrapRatioOfMedians(top, bottom, {1000, 0.95, 7});
  const Interval b = BootstrapRatioOfMedians(top, bottom, {1000, 0.95, 7});
  EXPECT_EQ(a.low, b.low);
  EXPECT_EQ(a.high, b.high);
}

TEST(Bootstrap, StaysWithinTheExtremesAndAroundTheEstimate) {
  const Interval interval = BootstrapRatioOfMedians({9, 10, 11, 12}, {4, 5, 6});
  EXPECT_GE(interval.low, 9.0 / 6);
  EXPECT_LE(interval.high, 12.0 / 4);
  EXPECT_LT(interval.low, 10.5 / 5);
  EXPECT_GT(interval.high, 10.5 / 5);
}

TEST(Bootstrap, LowerConfidenceIsNarrower) {
  const std::vector<double> top = {8, 9, 10, 11, 12}, bottom = {4, 5, 6};
  const Interval wide = BootstrapRatioOfMedians(top, bottom, {5000, 0.95, 0});
  const Interval narrow = BootstrapRatioOfMedians(top, bottom, {5000, 0.5, 0});
  EXPECT_LT(narrow.high - narrow.low, wide.high - wide.low);
}

TEST(Bootstrap, CoversTheTruthAboutAsOftenAsItSays) {
  // Two normal samples of 20 with a true ratio of medians of 2. The seeds are
  // fixed, so that the count is the same on every machine with this <random>.
  std::mt19937_64 random(1);
  std::normal_distribution<double> noise(0, 0.05);
  int covered = 0;
  const int studies = 300;
  for (int study = 0; study < studies; ++study) {
    std::vector<double> top(20), bottom(20);
    for (double& x : top) x = 2 * (1 + noise(random));
    for (double& x : bottom) x = 1 + noise(random);
    const Interval interval = BootstrapRatioOfMedians(top, bottom, {500});
    covered += interval.low <= 2 && 2 <= interval.high;
  }
  EXPECT_GT(covered, studies * 0.90);
  EXPECT_LT(covered, studies);
}

}  // namespace
}  // namespace rankwise
