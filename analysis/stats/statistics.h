// The statistics of analysis: order statistics and moments of a sample,
// Student's t, and what repetitions of two measurements say about their ratio.
// docs/metrics.md says why these.
#ifndef RANKWISE_ANALYSIS_STATS_STATISTICS_H_
#define RANKWISE_ANALYSIS_STATS_STATISTICS_H_

#include <array>
#include <cstdint>
#include <functional>
#include <iterator>
#include <vector>

#include "absl/types/span.h"

namespace rankwise {

// number(x) of each element x, in order; `number` may be a pointer to a member.
template <typename Range, typename Number>
std::vector<double> NumbersOf(const Range& range, Number number) {
  std::vector<double> numbers;
  numbers.reserve(std::size(range));
  for (const auto& x : range) numbers.push_back(std::invoke(number, x));
  return numbers;
}

// The q-quantile by linear interpolation between order statistics (Hyndman and
// Fan 1996, type 7: NumPy's default). NaN for an empty sample or one that
// holds a NaN. Requires 0 <= q <= 1.
double Quantile(absl::Span<const double> sample, double q);

double Median(absl::Span<const double> sample);

// NaN for an empty sample.
double Mean(absl::Span<const double> sample);

// Whether the values have logarithms, as geometric means require.
bool AllPositive(absl::Span<const double> sample);

// Of values above 0. NaN for an empty sample.
double GeometricMean(absl::Span<const double> sample);

// With n - 1 in the denominator; NaN for fewer than two values.
double StandardDeviation(absl::Span<const double> sample);

struct Interval {
  double low = 0;
  double high = 0;
};

// A distribution-free interval that covers the median of independent values
// with at least 95 %: the narrowest pair of symmetric order statistics, by the
// exact binomial distribution (Le Boudec 2010, theorem 2.1). With fewer than
// kFewestForMedian values, their range, which covers less. NaN for an empty
// sample.
Interval MedianInterval(absl::Span<const double> sample);
inline constexpr int64_t kFewestForMedian = 6;

// The same for a time series whose neighbouring values may be correlated: the
// interval for the effective sample size,
// n / (1 + 2 sum of the autocorrelations of sign(x - median)). The
// autocorrelations are those of an AR(1) process (Bartlett 1946) with the
// observed lag-1 correlation plus 2/n, which offsets the downward bias of short
// series. Covers 93 to 98.5 % from 15 values on, up to a correlation of 0.7.
Interval SeriesMedianInterval(absl::Span<const double> series);

// A 95 % interval of the geometric mean of the distribution from which the
// independent values are drawn: Student's t of their logarithms. NaN for fewer
// than two values. Requires values above 0.
Interval GeometricMeanInterval(absl::Span<const double> sample);

// P(|T| > t) of Student's t distribution (Abramowitz and Stegun 1964, 26.7.1).
// Degrees of freedom need not be whole. Requires t >= 0 and
// degrees_of_freedom >= 1.
double StudentTwoSidedP(double t, double degrees_of_freedom);

// The t with P(|T| > t) == p. Requires 1e-9 <= p < 1.
double StudentTwoSidedQuantile(double p, double degrees_of_freedom);

// The two-sided p of Welch's test (1947) that two samples have the same mean,
// whatever their variances. NaN where one holds fewer than 2 values.
double WelchP(absl::Span<const double> a, absl::Span<const double> b);

// Half the width of the interval of the sum of the expectations of independent
// samples of unequal variances, with the degrees of freedom of Welch (1947) and
// Satterthwaite (1946). Also for differences, as the sign of a sample does not
// matter. `outside` is the probability that the interval misses the truth. NaN
// if a sample has fewer than 2 values.
double HalfWidthOfSum(absl::Span<const std::vector<double>> samples,
                      double outside = 0.05);

// Welch's 95 % interval of mean(a) - mean(b). NaN if either has fewer than 2
// values.
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

// Requires non-empty samples of values above 0. `outside` is the
// probability that the interval misses the truth.
Ratio RatioOf(absl::Span<const double> numerator,
              absl::Span<const double> denominator, double outside = 0.05);

// Least squares of y = p[0] x0 + p[1] x1. For relative errors or other weights,
// divide both sides before adding them.
struct LeastSquares {
  double x0x0 = 0, x0x1 = 0, x1x1 = 0, x0y = 0, x1y = 0;  // sums

  void Add(double x0, double x1, double y);
  double Determinant() const { return x0x0 * x1x1 - x0x1 * x0x1; }

  // p[1] is 0 where every x1 was. Not finite where the observations do not
  // determine the parameters.
  std::array<double, 2> Solve() const;

  // The same with parameters that must not be negative. Where the observations
  // do not determine both, one of them is 0. At least one x0 must not be 0.
  std::array<double, 2> SolveNotNegative() const;
};

// Holm's correction (1979) of the p of several tests, in their order: rejecting
// what is below alpha rejects a true hypothesis among them with a probability
// of at most alpha. A NaN is a test that was not made: it stays and does not
// count.
std::vector<double> HolmCorrected(absl::Span<const double> p_values);

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_STATS_STATISTICS_H_
