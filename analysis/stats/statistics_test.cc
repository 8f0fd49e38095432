#include "analysis/stats/statistics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <numbers>
#include <numeric>
#include <random>
#include <vector>

namespace rankwise {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;

TEST(Statistics, MeansAndStandardDeviations) {
  EXPECT_DOUBLE_EQ(Mean({1.0, 2.0, 6.0}), 3);
  EXPECT_TRUE(std::isnan(Mean({})));
  EXPECT_DOUBLE_EQ(GeometricMean({1.0, 2.0, 4.0}), 2);
  EXPECT_TRUE(std::isnan(GeometricMean({})));
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

// Probability that the median of a continuous distribution lies between the
// order statistics 1 + left_out and size - left_out, from Pascal's triangle.
double ExactCoverage(int size, int left_out) {
  std::vector<double> row = {1};  // binomial probabilities
  for (int n = 1; n <= size; ++n) {
    row.push_back(0);
    for (int k = n; k > 0; --k) row[k] = (row[k] + row[k - 1]) / 2;
    row[0] /= 2;
  }
  double outside = 0;
  for (int k = 0; k <= left_out; ++k) outside += 2 * row[k];
  return 1 - outside;
}

// The number of values on each side of the interval.
int LeftOut(int size) {
  std::vector<double> ranks(size);
  std::iota(ranks.begin(), ranks.end(), 1);
  const Interval interval = MedianInterval(ranks);
  EXPECT_EQ(interval.low - 1, size - interval.high) << size;
  return static_cast<int>(interval.low) - 1;
}

TEST(MedianInterval, CoversAtLeast95PercentFromSixValuesOn) {
  for (int size = 2; size <= 1000; ++size) {
    const int left_out = LeftOut(size);
    const double coverage = ExactCoverage(size, left_out);
    if (size < 6) {
      EXPECT_EQ(coverage, 1 - std::pow(0.5, size - 1)) << size;
      continue;
    }
    EXPECT_GE(coverage, 0.95) << size;
    EXPECT_LT(ExactCoverage(size, left_out + 1), 0.95) << size;
  }
}

TEST(MedianInterval, HasTheExactCoverages) {
  const auto percent = [](int size) {
    return std::round(1000 * ExactCoverage(size, LeftOut(size))) / 10;
  };
  EXPECT_EQ(percent(6), 96.9);
  EXPECT_EQ(percent(8), 99.2);
  EXPECT_EQ(percent(9), 96.1);
  EXPECT_EQ(percent(16), 97.9);
  EXPECT_EQ(percent(20), 95.9);
  EXPECT_EQ(percent(100), 96.5);
  EXPECT_EQ(percent(1000), 95.4);
}

// Le Boudec 2010, table A.1; ranks from 1.
TEST(MedianInterval, AgreesWithThePublishedTable) {
  struct Case {
    int size, low;
  };
  for (const auto& [size, low] :
       {Case{1, 1}, Case{8, 1}, Case{9, 2}, Case{12, 3}, Case{20, 6},
        Case{30, 10}, Case{50, 18}, Case{70, 27}, Case{100, 40}}) {
    EXPECT_EQ(LeftOut(size), low - 1) << size;
  }
  EXPECT_EQ(LeftOut(10000), 4901);
  EXPECT_EQ(LeftOut(10000000), 4996900);  // 0.5 n - 0.98 sqrt(n) - 0.5
}

TEST(MedianInterval, IsTheRangeOfFewValues) {
  const Interval interval = MedianInterval({3, 1, 2});
  EXPECT_EQ(interval.low, 1);
  EXPECT_EQ(interval.high, 3);
  EXPECT_TRUE(std::isnan(MedianInterval({}).low));
}

// An AR(1) process of lag-1 correlation `rho`, median 0 and deviation 1.
std::vector<double> Correlated(int size, double rho, std::mt19937_64& random) {
  std::normal_distribution<double> normal;
  std::vector<double> series = {normal(random)};
  while (static_cast<int>(series.size()) < size) {
    series.push_back(rho * series.back() +
                     std::sqrt(1 - rho * rho) * normal(random));
  }
  return series;
}

TEST(SeriesMedianInterval, CoversTheMedianOfCorrelatedValues) {
  constexpr int kTrials = 2000;
  std::mt19937_64 random(3);
  for (const int size : {15, 20, 42, 100, 300}) {
    for (const double rho : {0.0, 0.3, 0.7}) {
      int covered = 0, covered_if_independent = 0;
      for (int trial = 0; trial < kTrials; ++trial) {
        const std::vector<double> series = Correlated(size, rho, random);
        const Interval interval = SeriesMedianInterval(series);
        covered += interval.low <= 0 && 0 <= interval.high;
        const Interval independent = MedianInterval(series);
        covered_if_independent += independent.low <= 0 && 0 <= independent.high;
      }
      const double share = covered / double{kTrials};
      EXPECT_GE(share, 0.92) << size << " of correlation " << rho;
      EXPECT_LE(share, 0.99) << size << " of correlation " << rho;
      if (rho == 0.7) {
        EXPECT_LT(covered_if_independent, 0.75 * kTrials);
      }
      std::printf(
          "%d values of correlation %.1f: %.1f %%, as if independent "
          "%.1f %%\n",
          size, rho, 100 * share, 100.0 * covered_if_independent / kTrials);
    }
  }
}

TEST(SeriesMedianInterval, EqualAndAlternatingValuesAreNotCorrelated) {
  const std::vector<double> equal(20, 3.0);
  EXPECT_EQ(SeriesMedianInterval(equal).low, 3);
  EXPECT_EQ(SeriesMedianInterval(equal).high, 3);
  std::vector<double> alternating;
  for (int i = 0; i < 100; ++i) alternating.push_back(i % 2 == 0 ? i : -i);
  EXPECT_EQ(SeriesMedianInterval(alternating).low,
            MedianInterval(alternating).low);
  EXPECT_TRUE(std::isnan(SeriesMedianInterval({}).low));
}

// Worked by hand: logarithms -1, 0 and 1, deviation 1; t is 4.3027 for 2
// degrees of freedom.
TEST(GeometricMeanInterval, IsStudentsOfTheLogarithms) {
  const double e = std::numbers::e;
  const Interval interval = GeometricMeanInterval({e, 1, 1 / e});
  EXPECT_NEAR(std::log(interval.high), 4.3027 / std::sqrt(3), 1e-4);
  EXPECT_NEAR(interval.low * interval.high, 1, 1e-9);
  EXPECT_TRUE(std::isnan(GeometricMeanInterval({1.0}).low));
}

TEST(StudentTest, QuantilesAreThoseOfTheTables) {
  EXPECT_NEAR(StudentTwoSidedQuantile(0.05, 1), 12.7062, 1e-4);
  EXPECT_NEAR(StudentTwoSidedQuantile(0.05, 2), 4.3027, 1e-4);
  EXPECT_NEAR(StudentTwoSidedQuantile(0.05, 3), 3.1824, 1e-4);
  EXPECT_NEAR(StudentTwoSidedQuantile(0.05, 10), 2.2281, 1e-4);
  EXPECT_NEAR(StudentTwoSidedQuantile(0.01, 15), 2.9467, 1e-4);
  EXPECT_NEAR(StudentTwoSidedQuantile(0.001, 4), 8.6103, 1e-4);
  EXPECT_NEAR(StudentTwoSidedQuantile(0.5, 30), 0.6828, 1e-4);
  EXPECT_NEAR(StudentTwoSidedQuantile(0.05, 1e5), 1.96, 1e-4);
}

// Integrates the density over the tail.
double IntegratedP(double t, double degrees) {
  const double log_factor = std::lgamma((degrees + 1) / 2) -
                            std::lgamma(degrees / 2) -
                            std::log(degrees * std::numbers::pi) / 2;
  // x = t / u for u in (0, 1]: the tail is finite there.
  constexpr int kSteps = 20000;
  double sum = 0;
  for (int i = 0; i < kSteps; ++i) {
    const double u = (i + 0.5) / kSteps, x = t / u;
    sum +=
        std::exp(log_factor - (degrees + 1) / 2 * std::log1p(x * x / degrees)) *
        t / (u * u);
  }
  return 2 * sum / kSteps;
}

TEST(StudentTest, DegreesOfFreedomNeedNotBeWhole) {
  for (double degrees : {1.0, 1.3, 1.9, 4.5, 17.2, 60.0}) {
    for (double t : {0.3, 1.0, 2.5, 6.0, 20.0}) {
      const double p = IntegratedP(t, degrees);
      EXPECT_NEAR(StudentTwoSidedP(t, degrees) / p, 1, 1e-5)
          << t << " of " << degrees;
      EXPECT_NEAR(StudentTwoSidedQuantile(std::max(p, 1e-9), degrees) / t, 1,
                  p > 1e-9 ? 1e-5 : 1);
    }
  }
}

TEST(StudentTest, NothingIsBeyondInfinityAndAllBeyondZero) {
  for (int degrees = 1; degrees < 40; ++degrees) {
    EXPECT_NEAR(StudentTwoSidedP(0, degrees), 1, 1e-12);
    EXPECT_NEAR(StudentTwoSidedP(1e12, degrees), 0, 1e-11);
  }
}

TEST(WelchP, IsThatOfTheFormula) {
  // t = 6 / sqrt(10/5 + 2.5/5), with 2.5^2 / (2^2/4 + 0.5^2/4) degrees of
  // freedom.
  EXPECT_NEAR(WelchP({2, 4, 6, 8, 10}, {-2, -1, 0, 1, 2}),
              StudentTwoSidedP(6 / std::sqrt(2.5), 6.25 / 1.0625), 1e-12);
  EXPECT_NEAR(WelchP({2, 4, 6, 8, 10}, {-2, -1, 0, 1, 2}), 0.00936472, 1e-8);
  EXPECT_EQ(WelchP({1, 2, 3}, {3, 2, 1}), 1);
  EXPECT_TRUE(std::isnan(WelchP({1}, {1, 2})));
}

TEST(WelchP, SamplesWithoutSpreadDifferOrDoNot) {
  EXPECT_EQ(WelchP({2, 2}, {3, 3, 3}), 0);
  EXPECT_EQ(WelchP({0.1, 0.1}, {0.1, 0.1, 0.1}), 1);
}

TEST(DifferenceInterval, EndsWhereThePIs5Percent) {
  const std::vector<double> a = {2, 4, 6, 8, 10}, b = {-2, -1, 0, 1, 2};
  const Interval interval = DifferenceInterval(a, b);
  EXPECT_NEAR(interval.low + interval.high, 2 * 6, 1e-12);
  for (const double end : {interval.low, interval.high}) {
    std::vector<double> moved = b;
    for (double& x : moved) x += end;
    EXPECT_NEAR(WelchP(a, moved), 0.05, 1e-9);
  }
  EXPECT_EQ(DifferenceInterval({3, 3}, {2, 2, 2}).low, 1);
  EXPECT_EQ(DifferenceInterval({3, 3}, {2, 2, 2}).high, 1);
  EXPECT_TRUE(std::isnan(DifferenceInterval({1}, {1, 2}).low));
}

TEST(RatioOf, IsOfGeometricMeansWithinItsInterval) {
  const Ratio ratio = RatioOf({2, 8}, {1, 1, 8});
  EXPECT_NEAR(ratio.value, 2, 1e-12);
  EXPECT_LT(ratio.interval.low, 2);
  EXPECT_GT(ratio.interval.high, 2);
  EXPECT_NEAR(ratio.interval.low * ratio.interval.high, 4, 1e-9);
}

TEST(RatioOf, TheInverseHasTheInverseInterval) {
  const std::vector<double> a = {1, 1.1, 1.3}, b = {2, 2.5};
  const Ratio ratio = RatioOf(a, b), inverse = RatioOf(b, a);
  EXPECT_NEAR(ratio.value * inverse.value, 1, 1e-12);
  EXPECT_NEAR(ratio.interval.low * inverse.interval.high, 1, 1e-9);
  EXPECT_NEAR(ratio.interval.high * inverse.interval.low, 1, 1e-9);
  EXPECT_NEAR(ratio.p_value, inverse.p_value, 1e-12);
}

TEST(RatioOf, AnEndOfTheIntervalIsWhereThePIs5Percent) {
  const std::vector<double> a = {1, 1.1, 1.3}, b = {2, 2.5};
  const Ratio ratio = RatioOf(b, a);
  std::vector<double> moved = a;
  for (double& x : moved) x *= ratio.interval.low;
  EXPECT_NEAR(RatioOf(b, moved).p_value, 0.05, 1e-9);
}

TEST(RatioOf, OneRepetitionHasNoInterval) {
  const Ratio ratio = RatioOf({3}, {2, 2});
  EXPECT_NEAR(ratio.value, 1.5, 1e-12);
  EXPECT_TRUE(std::isnan(ratio.interval.low));
  EXPECT_TRUE(std::isnan(ratio.interval.high));
  EXPECT_TRUE(std::isnan(ratio.p_value));
}

TEST(RatioOf, ConstantSamplesHaveAPointInterval) {
  const Ratio ratio = RatioOf({6, 6, 6}, {3, 3});
  EXPECT_NEAR(ratio.interval.low, 2, 1e-12);
  EXPECT_NEAR(ratio.interval.high, 2, 1e-12);
}

TEST(HolmCorrected, IsTheExampleOfItsSteps) {
  // 4 * 0.01, 3 * 0.015, then 2 * 0.03, and 0.04, which may not be below it.
  EXPECT_THAT(HolmCorrected({0.03, 0.01, 0.04, 0.015}),
              ElementsAre(DoubleNear(0.06, 1e-12), DoubleNear(0.04, 1e-12),
                          DoubleNear(0.06, 1e-12), DoubleNear(0.045, 1e-12)));
  EXPECT_THAT(HolmCorrected({0.6, 0.7}), ElementsAre(1, 1));
  EXPECT_THAT(HolmCorrected({0.2}), ElementsAre(0.2));
  EXPECT_TRUE(HolmCorrected({}).empty());
}

TEST(HolmCorrected, TestsThatWereNotMadeDoNotCount) {
  const std::vector<double> corrected =
      HolmCorrected({std::nan(""), 0.01, 0.02});
  EXPECT_TRUE(std::isnan(corrected[0]));
  EXPECT_NEAR(corrected[1], 0.02, 1e-12);
  EXPECT_NEAR(corrected[2], 0.02, 1e-12);
}

struct Observation {
  double observed = 1;
  double fixed = 0;
  double x0 = 0, x1 = 0;
};
using Observations = std::vector<Observation>;

// Observations of 20 + p0 x + p1 x^2.
Observations Exact(double p0, double p1) {
  Observations points;
  for (double x : {1, 2, 5, 9}) {
    points.push_back({20 + p0 * x + p1 * x * x, 20, x, x * x});
  }
  return points;
}

// Sums for relative errors.
LeastSquares Relative(const Observations& points) {
  LeastSquares sums;
  for (const auto& [observed, fixed, x0, x1] : points) {
    sums.Add(x0 / observed, x1 / observed, 1 - fixed / observed);
  }
  return sums;
}

TEST(LeastSquares, RecoversWhatIsExact) {
  const auto fitted = Relative(Exact(3, -0.125)).Solve();
  EXPECT_NEAR(fitted[0], 3, 1e-9);
  EXPECT_NEAR(fitted[1], -0.125, 1e-9);
}

TEST(LeastSquares, WeighsRelativeErrorsAsShares) {
  // y = p x: an observation adds (p x / y - 1)^2, so p is the sum of x / y over
  // the sum of (x / y)^2.
  const auto fitted = Relative({{1, 0, 1}, {2000, 0, 1000}}).Solve();
  EXPECT_NEAR(fitted[0], 1.5 / 1.25, 1e-12);
  EXPECT_EQ(fitted[1], 0);
}

double Squares(const Observations& points, double p0, double p1) {
  double sum = 0;
  for (const auto& [observed, fixed, x0, x1] : points) {
    const double off = (fixed + p0 * x0 + p1 * x1) / observed - 1;
    sum += off * off;
  }
  return sum;
}

TEST(LeastSquares, NothingNearbyThatIsNotNegativeIsBetter) {
  std::mt19937_64 random(9);
  std::uniform_real_distribution<double> parameter(-1, 1), noise(0.9, 1.1);
  for (int trial = 0; trial < 100; ++trial) {
    Observations points = Exact(parameter(random), 0.1 * parameter(random));
    for (Observation& point : points) point.observed *= noise(random);
    const auto fitted = Relative(points).SolveNotNegative();
    ASSERT_GE(fitted[0], 0);
    ASSERT_GE(fitted[1], 0);
    const double least = Squares(points, fitted[0], fitted[1]);
    for (double d0 : {-0.01, 0.0, 0.01}) {
      for (double d1 : {-0.001, 0.0, 0.001}) {
        if (fitted[0] + d0 < 0 || fitted[1] + d1 < 0) continue;
        EXPECT_LE(least,
                  Squares(points, fitted[0] + d0, fitted[1] + d1) + 1e-12)
            << trial;
      }
    }
  }
}

TEST(LeastSquares, UndeterminedParametersAreNotInvented) {
  // The factors are equal: one of them gets the whole coefficient.
  const auto fitted = Relative({{4, 1, 1, 1}, {4, 1, 1, 1}}).SolveNotNegative();
  EXPECT_NEAR(fitted[0] + fitted[1], 3, 1e-12);
  EXPECT_EQ(Relative({{1, 2, 1}}).SolveNotNegative()[0], 0);
}

}  // namespace
}  // namespace rankwise
