#include "analysis/stats/statistics.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numbers>

#include "absl/algorithm/container.h"

namespace rankwise {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

// The regularised incomplete beta function I_x(a, b), by the series of DLMF
// 8.17.8 (https://dlmf.nist.gov/8.17), whose terms are all positive.
double IncompleteBeta(double a, double b, double x) {
  if (x <= 0) return 0;
  const double log_beta = std::lgamma(a) + std::lgamma(b) - std::lgamma(a + b);
  double term = std::exp(a * std::log(x) + b * std::log1p(-x) - log_beta) / a;
  double sum = 0;
  for (double k = 0; term > sum * std::numeric_limits<double>::epsilon(); ++k) {
    sum += term;
    term *= x * (a + b + k) / (a + 1 + k);
  }
  return sum;
}

// Standard error of a sum of the means of independent samples.
struct StandardError {
  double value = 0;
  double degrees_of_freedom = 1;  // Welch (1947) and Satterthwaite (1946)
};

StandardError StandardErrorOf(absl::Span<const std::vector<double>> samples) {
  double variance = 0, squares = 0;
  for (const std::vector<double>& sample : samples) {
    const double n = static_cast<double>(sample.size());
    const double deviation = StandardDeviation(sample);
    const double of_mean = deviation * deviation / n;
    variance += of_mean;
    squares += of_mean * of_mean / (n - 1);
  }
  return {std::sqrt(variance), squares > 0 ? variance * variance / squares : 1};
}

std::vector<double> Logarithms(absl::Span<const double> sample) {
  assert(AllPositive(sample));
  return NumbersOf(sample, [](double x) { return std::log(x); });
}

// Returns the largest k with P(B <= k) <= 2.5 % for a binomial B of `size`
// trials and probability 1/2; 0 if there is none.
size_t LeftOutOfMedianInterval(size_t size) {
  constexpr double kTail = 0.025;
  const double n = static_cast<double>(size);
  // P(B < n/2 - 5 sqrt(n)) is below 1e-22.
  double k = std::max(0.0, std::floor(n / 2 - 5 * std::sqrt(n)));
  double term = std::exp(std::lgamma(n + 1) - std::lgamma(k + 1) -
                         std::lgamma(n - k + 1) - n * std::numbers::ln2);
  double below = term;
  while (below + term * (n - k) / (k + 1) <= kTail) {
    term *= (n - k) / (k + 1);
    below += term;
    ++k;
  }
  return static_cast<size_t>(k);
}

Interval IntervalLeavingOut(size_t left_out, absl::Span<const double> sample) {
  if (sample.empty()) return {kUnknown, kUnknown};
  std::vector<double> sorted(sample.begin(), sample.end());
  absl::c_sort(sorted);
  return {sorted[left_out], sorted[sorted.size() - 1 - left_out]};
}

// Returns the factor, at least 1, by which autocorrelation increases the
// variance of the fraction of values below the median.
double VarianceInflation(absl::Span<const double> series) {
  const double median = Median(series);
  double products = 0, squares = 0, before = 0;
  for (double x : series) {
    const double sign = (x > median) - (x < median);
    products += sign * before;
    squares += sign * sign;
    before = sign;
  }
  if (squares == 0) return 1;
  constexpr double kLargest = 0.97;  // beyond it the series is a trend
  const double lag1 = std::min(
      kLargest, products / squares + 2 / static_cast<double>(series.size()));
  if (lag1 <= 0) return 1;
  // Signs of normal deviates of correlation r are correlated by 2/pi asin(r).
  constexpr double kTwoByPi = 2 * std::numbers::inv_pi;
  const double correlation = std::sin(lag1 / kTwoByPi);
  double inflation = 1;
  for (double power = correlation; power > 1e-3; power *= correlation)
    inflation += 2 * kTwoByPi * std::asin(power);
  return inflation;
}

}  // namespace

double Quantile(absl::Span<const double> sample, double q) {
  assert(q >= 0 && q <= 1);
  std::vector<double> sorted(sample.begin(), sample.end());
  const auto is_nan = [](double x) { return std::isnan(x); };
  if (sorted.empty() || absl::c_any_of(sorted, is_nan)) return kUnknown;
  absl::c_sort(sorted);
  const double position = q * static_cast<double>(sorted.size() - 1);
  const size_t below = static_cast<size_t>(position);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  const double weight = position - static_cast<double>(below);
  if (weight == 0) return sorted[below];
  return sorted[below] + weight * (sorted[above] - sorted[below]);
}

double Median(absl::Span<const double> sample) { return Quantile(sample, 0.5); }

double Mean(absl::Span<const double> sample) {
  return absl::c_accumulate(sample, 0.0) / static_cast<double>(sample.size());
}

bool AllPositive(absl::Span<const double> sample) {
  return absl::c_all_of(sample, [](double x) { return x > 0; });
}

double GeometricMean(absl::Span<const double> sample) {
  if (sample.empty()) return kUnknown;
  // relative to the first, so that equal values return themselves
  double logs = 0;
  for (double x : sample) logs += std::log(x / sample[0]);
  return sample[0] * std::exp(logs / static_cast<double>(sample.size()));
}

double StandardDeviation(absl::Span<const double> sample) {
  if (sample.size() < 2) return kUnknown;
  const double mean = Mean(sample);
  double squares = 0;
  for (double x : sample) squares += (x - mean) * (x - mean);
  return std::sqrt(squares / static_cast<double>(sample.size() - 1));
}

Interval MedianInterval(absl::Span<const double> sample) {
  return IntervalLeavingOut(LeftOutOfMedianInterval(sample.size()), sample);
}

Interval SeriesMedianInterval(absl::Span<const double> series) {
  const double size = static_cast<double>(series.size());
  const double independent =
      std::max(1.0, std::floor(size / VarianceInflation(series)));
  const size_t left_out =
      LeftOutOfMedianInterval(static_cast<size_t>(independent));
  return IntervalLeavingOut(
      static_cast<size_t>(static_cast<double>(left_out) * size / independent),
      series);
}

Interval GeometricMeanInterval(absl::Span<const double> sample) {
  if (sample.size() < 2) return {kUnknown, kUnknown};
  constexpr double kOutside = 0.05;
  const double count = static_cast<double>(sample.size());
  const double reach =
      std::exp(StudentTwoSidedQuantile(kOutside, count - 1) *
               StandardDeviation(Logarithms(sample)) / std::sqrt(count));
  const double mean = GeometricMean(sample);
  return {mean / reach, mean * reach};
}

double StudentTwoSidedP(double t, double degrees_of_freedom) {
  const double all = degrees_of_freedom + t * t;
  const double half = degrees_of_freedom / 2;
  const double x = degrees_of_freedom / all, rest = t * t / all;
  // Computes small tails directly; elsewhere the other series is shorter.
  const bool small = x < 0.5 || half * rest > 10;
  return small ? IncompleteBeta(half, 0.5, x)
               : 1 - IncompleteBeta(0.5, half, rest);
}

double StudentTwoSidedQuantile(double p, double degrees_of_freedom) {
  double low = 0, high = 1;
  while (StudentTwoSidedP(high, degrees_of_freedom) > p) {
    low = high;
    high *= 2;
  }
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (StudentTwoSidedP(middle, degrees_of_freedom) > p ? low : high) = middle;
  }
  return high;
}

double WelchP(absl::Span<const double> a, absl::Span<const double> b) {
  constexpr double kRounding = 1e-14;  // for equal samples of different sizes
  const std::vector<double> samples[] = {{a.begin(), a.end()},
                                         {b.begin(), b.end()}};
  const StandardError error = StandardErrorOf(samples);
  if (std::isnan(error.value)) return kUnknown;
  const double distance = std::abs(Mean(a) - Mean(b));
  if (distance < kRounding * std::abs(Mean(a))) return 1;
  if (error.value == 0) return distance == 0 ? 1 : 0;
  return StudentTwoSidedP(distance / error.value, error.degrees_of_freedom);
}

double HalfWidthOfSum(absl::Span<const std::vector<double>> samples,
                      double outside) {
  const StandardError error = StandardErrorOf(samples);
  if (std::isnan(error.value)) return kUnknown;
  return error.value *
         StudentTwoSidedQuantile(outside, error.degrees_of_freedom);
}

Interval DifferenceInterval(absl::Span<const double> a,
                            absl::Span<const double> b) {
  const std::vector<double> samples[] = {{a.begin(), a.end()},
                                         {b.begin(), b.end()}};
  const double half = HalfWidthOfSum(samples);
  const double difference = Mean(a) - Mean(b);
  return {difference - half, difference + half};
}

Ratio RatioOf(absl::Span<const double> numerator,
              absl::Span<const double> denominator, double outside) {
  assert(!numerator.empty() && !denominator.empty());
  const std::vector<double> logs[] = {Logarithms(numerator),
                                      Logarithms(denominator)};
  const double half = HalfWidthOfSum(logs, outside);
  Ratio ratio{GeometricMean(numerator) / GeometricMean(denominator),
              {kUnknown, kUnknown},
              WelchP(logs[0], logs[1])};
  if (std::isnan(half)) return ratio;
  ratio.interval = {ratio.value * std::exp(-half),
                    ratio.value * std::exp(half)};
  return ratio;
}

void LeastSquares::Add(double x0, double x1, double y) {
  x0x0 += x0 * x0;
  x0x1 += x0 * x1;
  x1x1 += x1 * x1;
  x0y += x0 * y;
  x1y += x1 * y;
}

std::array<double, 2> LeastSquares::Solve() const {
  if (x1x1 == 0) return {x0y / x0x0, 0};
  const double p1 = (x0x0 * x1y - x0x1 * x0y) / Determinant();
  return {(x0y - p1 * x0x1) / x0x0, p1};
}

std::array<double, 2> LeastSquares::SolveNotNegative() const {
  const std::array<double, 2> free = Solve();
  if (absl::c_all_of(free, [](double p) { return std::isfinite(p) && p >= 0; }))
    return free;
  // Chooses the edge that lowers the sum of squares more.
  const double p0 = std::max(0.0, x0y / x0x0);
  const double p1 = x1x1 == 0 ? 0 : std::max(0.0, x1y / x1x1);
  const bool first = p0 * (2 * x0y - p0 * x0x0) >= p1 * (2 * x1y - p1 * x1x1);
  return first ? std::array<double, 2>{p0, 0} : std::array<double, 2>{0, p1};
}

std::vector<double> HolmCorrected(absl::Span<const double> p_values) {
  std::vector<double> corrected(p_values.begin(), p_values.end());
  std::vector<size_t> order(p_values.size());
  absl::c_iota(order, 0);
  std::erase_if(order, [&](size_t i) { return std::isnan(p_values[i]); });
  absl::c_sort(order,
               [&](size_t i, size_t j) { return p_values[i] < p_values[j]; });
  double largest = 0;
  for (size_t done = 0; done < order.size(); ++done) {
    const double left = static_cast<double>(order.size() - done);
    largest = std::max(largest, std::min(1.0, left * p_values[order[done]]));
    corrected[order[done]] = largest;
  }
  return corrected;
}

}  // namespace rankwise
