#include "analysis/stats/statistics.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>
#include <vector>

namespace rankwise {
namespace {

double SortedQuantile(const std::vector<double>& sorted, double q) {
  const double position = q * static_cast<double>(sorted.size() - 1);
  const size_t below = static_cast<size_t>(position);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  const double weight = position - static_cast<double>(below);
  if (weight == 0) return sorted[below];
  return sorted[below] + weight * (sorted[above] - sorted[below]);
}

}  // namespace

double Quantile(absl::Span<const double> sample, double q) {
  assert(q >= 0 && q <= 1);
  std::vector<double> sorted(sample.begin(), sample.end());
  const auto is_nan = [](double x) { return std::isnan(x); };
  if (sorted.empty() || std::any_of(sorted.begin(), sorted.end(), is_nan)) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  std::sort(sorted.begin(), sorted.end());
  return SortedQuantile(sorted, q);
}

double Median(absl::Span<const double> sample) { return Quantile(sample, 0.5); }

double Mean(absl::Span<const double> sample) {
  double sum = 0;
  for (double x : sample) sum += x;
  return sum / static_cast<double>(sample.size());
}

double GeometricMean(absl::Span<const double> sample) {
  if (sample.empty()) return std::numeric_limits<double>::quiet_NaN();
  double logs = 0;  // over the first, so that equal values give themselves
  for (double x : sample) logs += std::log(x / sample[0]);
  return sample[0] * std::exp(logs / static_cast<double>(sample.size()));
}

double StandardDeviation(absl::Span<const double> sample) {
  if (sample.size() < 2) return std::numeric_limits<double>::quiet_NaN();
  const double mean = Mean(sample);
  double squares = 0;
  for (double x : sample) squares += (x - mean) * (x - mean);
  return std::sqrt(squares / static_cast<double>(sample.size() - 1));
}

}  // namespace rankwise
