#include "analysis/stats/ratio.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>
#include <numeric>

#include "analysis/stats/student.h"

namespace rankwise {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

// mean(a) - mean(b), with the degrees of freedom of Welch (1947) and
// Satterthwaite (1946) for its standard error.
struct Difference {
  double value = 0;
  double standard_error = 0;
  double degrees_of_freedom = 0;
};

Difference DifferenceOfMeans(absl::Span<const double> a,
                             absl::Span<const double> b) {
  constexpr double kRounding = 1e-14;  // of equal samples of different size
  const double mean_a = Mean(a), mean_b = Mean(b);
  double value = mean_a - mean_b;
  if (std::abs(value) < kRounding * std::abs(mean_a)) value = 0;
  double variance = 0, squares = 0;
  for (absl::Span<const double> sample : {a, b}) {
    const double n = static_cast<double>(sample.size());
    const double deviation = StandardDeviation(sample);
    const double of_mean = deviation * deviation / n;
    variance += of_mean;
    squares += of_mean * of_mean / (n - 1);
  }
  return {value, std::sqrt(variance),
          squares > 0 ? variance * variance / squares : 1};
}

double PValue(const Difference& difference) {
  if (std::isnan(difference.standard_error)) return kUnknown;
  const double distance = std::abs(difference.value);
  if (difference.standard_error == 0) return distance == 0 ? 1 : 0;
  return StudentTwoSidedP(distance / difference.standard_error,
                          difference.degrees_of_freedom);
}

std::vector<double> Logarithms(absl::Span<const double> sample) {
  std::vector<double> logs;
  for (double x : sample) {
    assert(x > 0);
    logs.push_back(std::log(x));
  }
  return logs;
}

}  // namespace

double WelchP(absl::Span<const double> a, absl::Span<const double> b) {
  return PValue(DifferenceOfMeans(a, b));
}

Ratio RatioOf(absl::Span<const double> numerator,
              absl::Span<const double> denominator) {
  assert(!numerator.empty() && !denominator.empty());
  constexpr double kOutside = 0.05;
  const Difference logs =
      DifferenceOfMeans(Logarithms(numerator), Logarithms(denominator));
  Ratio ratio{GeometricMean(numerator) / GeometricMean(denominator),
              {kUnknown, kUnknown},
              PValue(logs)};
  if (std::isnan(ratio.p_value)) return ratio;
  const double half =
      logs.standard_error *
      StudentTwoSidedQuantile(kOutside, logs.degrees_of_freedom);
  ratio.interval = {ratio.value * std::exp(-half),
                    ratio.value * std::exp(half)};
  return ratio;
}

std::vector<double> HolmCorrected(absl::Span<const double> p_values) {
  std::vector<double> corrected(p_values.begin(), p_values.end());
  std::vector<size_t> order(p_values.size());
  std::iota(order.begin(), order.end(), 0);
  std::erase_if(order, [&](size_t i) { return std::isnan(p_values[i]); });
  std::sort(order.begin(), order.end(),
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
