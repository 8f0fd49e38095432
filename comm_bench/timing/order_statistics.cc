#include "comm_bench/timing/order_statistics.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "absl/strings/str_format.h"

namespace rankwise::comm_bench {
namespace {

constexpr double kTail = 0.025;    // that the median lies below the interval
constexpr size_t kLargeSize = 70;  // from here on the normal approximation

// How many of the smallest of `size` samples, and of the largest, the interval
// leaves out.
size_t LeftOut(size_t size) {
  if (size > kLargeSize) {
    const double n = static_cast<double>(size);
    return static_cast<size_t>(0.5 * n - 0.98 * std::sqrt(n)) - 1;
  }
  // `term` and `below`: the probability that exactly, and at most, k samples
  // lie below the median.
  double term = std::pow(0.5, static_cast<double>(size));
  double below = term;
  size_t left_out = 0;
  for (size_t k = 1; below + term * (size - k + 1) / k <= kTail; ++k) {
    term *= static_cast<double>(size - k + 1) / k;
    below += term;
    left_out = k;
  }
  return left_out;
}

}  // namespace

Interval IntervalOfMedian(absl::Span<const double> sorted) {
  const size_t left_out = LeftOut(sorted.size());
  return {sorted[left_out], sorted[sorted.size() - 1 - left_out]};
}

double Estimate::reach() const { return std::max(value - low, high - value); }

Estimate EstimateMedian(std::vector<double> sample) {
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  std::sort(sample.begin(), sample.end());
  const double median = Median(sample);
  if (static_cast<int64_t>(sample.size()) < kFewestSamples) {
    return {median, kNone, kNone};
  }
  const Interval interval = IntervalOfMedian(sample);
  return {median, interval.low, interval.high};
}

Estimate Difference(const Estimate& a, const Estimate& b) {
  const double value = a.value - b.value;
  return {value, value - std::hypot(a.value - a.low, b.high - b.value),
          value + std::hypot(a.high - a.value, b.value - b.low)};
}

std::string ReachInPercent(const Estimate& estimate) {
  if (std::isnan(estimate.reach()) || estimate.value <= 0) return "-";
  return absl::StrFormat("%.1f", 100 * estimate.reach() / estimate.value);
}

}  // namespace rankwise::comm_bench
