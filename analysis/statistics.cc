#include "analysis/statistics.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>
#include <random>
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

// The median of a sample of the same size drawn with replacement.
double ResampledMedian(absl::Span<const double> sample, std::mt19937_64* random,
                       std::vector<double>* scratch) {
  std::uniform_int_distribution<size_t> index(0, sample.size() - 1);
  scratch->clear();
  for (size_t i = 0; i < sample.size(); ++i) {
    scratch->push_back(sample[index(*random)]);
  }
  std::sort(scratch->begin(), scratch->end());
  return SortedQuantile(*scratch, 0.5);
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

Interval BootstrapRatioOfMedians(absl::Span<const double> numerator,
                                 absl::Span<const double> denominator,
                                 const BootstrapConfig& config) {
  assert(!numerator.empty() && !denominator.empty());
  std::mt19937_64 random(config.seed);
  std::vector<double> scratch, ratios;
  ratios.reserve(config.resamples);
  for (int i = 0; i < config.resamples; ++i) {
    const double top = ResampledMedian(numerator, &random, &scratch);
    const double bottom = ResampledMedian(denominator, &random, &scratch);
    ratios.push_back(top / bottom);
  }
  const double tail = (1 - config.confidence) / 2;
  return {Quantile(ratios, tail), Quantile(ratios, 1 - tail)};
}

}  // namespace rankwise
