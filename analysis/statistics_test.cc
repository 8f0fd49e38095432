#include "analysis/statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace rankwise {
namespace {

TEST(Statistics, MeansAndStandardDeviations) {
  EXPECT_DOUBLE_EQ(Mean({1.0, 2.0, 6.0}), 3);
  EXPECT_TRUE(std::isnan(Mean({})));
  EXPECT_DOUBLE_EQ(StandardDeviation({1.0, 2.0, 6.0}), std::sqrt(7));
  EXPECT_TRUE(std::isnan(StandardDeviation({1.0})));
}

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

// first, first + step, ...
std::vector<double> Range(int count, double first, double step) {
  std::vector<double> values;
  for (int i = 0; i < count; ++i) values.push_back(first + step * i);
  return values;
}

TEST(MannWhitneyTest, SmallSamplesAreExact) {
  // The example of scipy.stats.mannwhitneyu (1.17.1).
  const MannWhitney ages =
      MannWhitneyTest({19, 22, 16, 29, 24}, {20, 11, 17, 12});
  EXPECT_EQ(ages.u, 17);
  EXPECT_TRUE(ages.exact);
  EXPECT_NEAR(ages.p_value, 0.1111111111111111, 1e-15);
  // scipy with method="exact".
  const MannWhitney large =
      MannWhitneyTest(Range(20, 0, 1), Range(18, 3.123, 1.37));
  EXPECT_EQ(large.u, 106);
  EXPECT_TRUE(large.exact);
  EXPECT_NEAR(large.p_value, 0.030479818017967446, 1e-14);
}

TEST(MannWhitneyTest, AgreesWithThePublishedTable) {
  // Mann and Whitney 1947, table I: n = m = 5, P(U <= 4) = .048; n = m = 4,
  // P(U <= 1) = .029; n = 4, m = 3, P(U <= 0) = .028. One-sided.
  EXPECT_NEAR(MannWhitneyTest({1, 2, 3, 4, 9}, {5, 6, 7, 8, 10}).p_value / 2,
              0.048, 5e-4);
  EXPECT_NEAR(MannWhitneyTest({1, 2, 3, 5}, {4, 6, 7, 8}).p_value / 2, 0.029,
              5e-4);
  EXPECT_NEAR(MannWhitneyTest({1, 2, 3}, {4, 5, 6, 7}).p_value / 2, 0.028,
              6e-4);
}

TEST(MannWhitneyTest, TiesAndLargeSamplesTakeTheNormalApproximation) {
  // scipy 1.17.1.
  const MannWhitney ties =
      MannWhitneyTest({1, 2, 2, 3, 5, 8}, {2, 4, 4, 6, 9, 9, 10});
  EXPECT_EQ(ties.u, 9);
  EXPECT_FALSE(ties.exact);
  EXPECT_NEAR(ties.p_value, 0.09760706947335236, 1e-14);
  const MannWhitney large =
      MannWhitneyTest(Range(25, 0, 1), Range(22, 3.123, 1.37));
  EXPECT_EQ(large.u, 178);
  EXPECT_FALSE(large.exact);
  EXPECT_NEAR(large.p_value, 0.03964902300854824, 1e-14);
}

TEST(MannWhitneyTest, ThePOfFewTiedValuesIsNotBelowWhatTheyCanReach) {
  EXPECT_NEAR(MannWhitneyTest({1, 1, 1, 1}, {2, 2, 2, 2}).p_value, 2.0 / 70,
              1e-15);
}

TEST(MannWhitneyTest, IsSymmetricAndOneForEqualSamples) {
  const std::vector<double> a = {3, 1, 4, 15}, b = {9, 2, 6, 5, 7};
  EXPECT_EQ(MannWhitneyTest(a, b).p_value, MannWhitneyTest(b, a).p_value);
  EXPECT_EQ(MannWhitneyTest(a, b).u + MannWhitneyTest(b, a).u, 20);
  EXPECT_EQ(MannWhitneyTest({1, 1, 1}, {1, 1}).p_value, 1);
  EXPECT_EQ(MannWhitneyTest({3}, {5}).p_value, 1);
  EXPECT_EQ(MannWhitneyTest({3}, {3}).p_value, 1);
}

TEST(MannWhitneyTest, RejectsATrueHypothesisAsOftenAsItSays) {
  std::mt19937_64 random(5);
  std::normal_distribution<double> noise;
  int rejected = 0;
  const int trials = 2000;
  for (int trial = 0; trial < trials; ++trial) {
    std::vector<double> a(9), b(11);
    for (double& x : a) x = noise(random);
    for (double& x : b) x = noise(random);
    rejected += MannWhitneyTest(a, b).p_value < 0.05;
  }
  EXPECT_GT(rejected, 0.03 * trials);
  EXPECT_LE(rejected, 0.06 * trials);
}

TEST(MannWhitneyTest, FewValuesCannotReachASmallP) {
  EXPECT_NEAR(SmallestMannWhitneyP(3, 3), 0.1, 1e-15);
  EXPECT_NEAR(SmallestMannWhitneyP(4, 4), 2.0 / 70, 1e-15);
  EXPECT_EQ(SmallestMannWhitneyP(1, 1), 1);
  EXPECT_NEAR(MannWhitneyTest(Range(5, 0, 1), Range(5, 9, 1)).p_value,
              SmallestMannWhitneyP(5, 5), 1e-15);
}

}  // namespace
}  // namespace rankwise
