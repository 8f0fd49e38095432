// Statistics for analyses: order statistics and moments of a sample, Student's
// t, and ratios of repeated measurements. docs/metrics.md explains the choice
// of methods.
#ifndef RANKWISE_ANALYSIS_STATS_STATISTICS_H_
#define RANKWISE_ANALYSIS_STATS_STATISTICS_H_

#include <array>
#include <cstdint>
#include <functional>
#include <iterator>
#include <vector>

#include "absl/types/span.h"

namespace rankwise {

// Returns number(x) of each element x, in order; `number` may be a pointer to a
// member.
template <typename Range, typename Number>
std::vector<double> NumbersOf(const Range& range, Number number) {
  std::vector<double> numbers;
  numbers.reserve(std::size(range));
  for (const auto& x : range) numbers.push_back(std::invoke(number, x));
  return numbers;
}

// Returns the q-quantile by linear interpolation between order statistics
// (Hyndman and Fan 1996, type 7: NumPy's default). NaN for an empty sample or
// one with a NaN. Requires 0 <= q <= 1.
double Quantile(absl::Span<const double> sample, double q);

double Median(absl::Span<const double> sample);

// Returns NaN for an empty sample.
double Mean(absl::Span<const double> sample);

// Whether all values are positive, as geometric means require.
bool AllPositive(absl::Span<const double> sample);

// Requires positive values. Returns NaN for an empty sample.
double GeometricMean(absl::Span<const double> sample);

// Divides by n - 1. Returns NaN for fewer than two values.
double StandardDeviation(absl::Span<const double> sample);

struct Interval {
  double low = 0;
  double high = 0;
};

// Returns a distribution-free interval that covers the median of independent
// values with at least 95 %: the narrowest pair of symmetric order statistics,
// by the exact binomial distribution (Le Boudec 2010, theorem 2.1). With fewer
// than kFewestForMedian values, returns their range, which covers less. NaN for
// an empty sample.
Interval MedianInterval(absl::Span<const double> sample);
inline constexpr int64_t kFewestForMedian = 6;

// MedianInterval for a time series whose neighbouring values may be correlated:
// uses the effective sample size, n / (1 + 2 sum of the autocorrelations of
// sign(x - median)). The autocorrelations are those of an AR(1) process
// (Bartlett 1946) with the observed lag-1 correlation plus 2/n, which offsets
// the downward bias of short series. Covers 93 to 98.5 % from 15 values on, up
// to a correlation of 0.7.
Interval SeriesMedianInterval(absl::Span<const double> series);

// Returns a 95 % interval of the geometric mean of the distribution of the
// independent values: Student's t of their logarithms. NaN for fewer than two
// values. Requires positive values.
Interval GeometricMeanInterval(absl::Span<const double> sample);

// Returns P(|T| > t) of Student's t distribution (Abramowitz and Stegun 1964,
// 26.7.1). Degrees of freedom need not be integers. Requires t >= 0 and
// degrees_of_freedom >= 1.
double StudentTwoSidedP(double t, double degrees_of_freedom);

// Returns the t with P(|T| > t) == p. Requires 1e-9 <= p < 1.
double StudentTwoSidedQuantile(double p, double degrees_of_freedom);

// Returns the two-sided p-value of Welch's test (1947) of equal means with
// unequal variances. NaN if a sample has fewer than 2 values.
double WelchP(absl::Span<const double> a, absl::Span<const double> b);

// Returns half the width of the interval of the sum of the expectations of
// independent samples of unequal variances, with the degrees of freedom of
// Welch (1947) and Satterthwaite (1946). Also valid for differences, as a
// sample's sign does not matter. `outside` is the probability that the interval
// misses the truth. NaN if a sample has fewer than 2 values.
double HalfWidthOfSum(absl::Span<const std::vector<double>> samples,
                      double outside = 0.05);

// Returns Welch's 95 % interval of mean(a) - mean(b). NaN if either has fewer
// than 2 values.
Interval DifferenceInterval(absl::Span<const double> a,
                            absl::Span<const double> b);

// A ratio of geometric means, numerator over denominator.
struct Ratio {
  double value = 0;
  // Welch's interval for the difference of the means of the logarithms, with a
  // confidence of 1 - `outside`. Always contains `value`. NaN if a sample has
  // fewer than 2 values.
  Interval interval;
  double p_value = 0;  // WelchP of the logarithms
};

// Requires non-empty samples of positive values. `outside` is the probability
// that the interval misses the truth.
Ratio RatioOf(absl::Span<const double> numerator,
              absl::Span<const double> denominator, double outside = 0.05);

// Least squares of y = p[0] x0 + p[1] x1. For relative errors or other weights,
// divide both sides before adding them.
struct LeastSquares {
  double x0x0 = 0, x0x1 = 0, x1x1 = 0, x0y = 0, x1y = 0;  // sums

  void Add(double x0, double x1, double y);
  double Determinant() const { return x0x0 * x1x1 - x0x1 * x0x1; }

  // Returns p[1] = 0 if every x1 was 0, and non-finite values if the
  // observations do not determine the parameters.
  std::array<double, 2> Solve() const;

  // Solve() with non-negative parameters. If the observations do not determine
  // both, one of them is 0. Requires an x0 other than 0.
  std::array<double, 2> SolveNotNegative() const;
};

// Returns Holm's correction (1979) of the p-values of several tests, in their
// order: rejecting those below alpha rejects any true hypothesis with a
// probability of at most alpha. A NaN marks a test that was not made; it stays
// NaN and is not counted.
std::vector<double> HolmCorrected(absl::Span<const double> p_values);

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_STATS_STATISTICS_H_
