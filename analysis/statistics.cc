#include "analysis/statistics.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>
#include <random>
#include <utility>
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

constexpr size_t kLargestExactSample = 20;

// In how many ways m values fall among n others so that u of the m * n pairs
// have theirs larger, for every u (Mann and Whitney 1947, section 2): the
// largest of all is one of the m, and exceeds n others, or it is not.
std::vector<double> CountsOfU(size_t m, size_t n) {
  // counts[j]: of i values among j others, i growing from 0 to m.
  std::vector<std::vector<double>> counts(n + 1, std::vector<double>(1, 1));
  for (size_t i = 1; i <= m; ++i) {
    counts[0].assign(1, 1);
    for (size_t j = 1; j <= n; ++j) {
      std::vector<double> next(i * j + 1, 0);
      for (size_t u = 0; u < counts[j].size(); ++u) next[u + j] += counts[j][u];
      for (size_t u = 0; u < counts[j - 1].size(); ++u) {
        next[u] += counts[j - 1][u];
      }
      counts[j] = std::move(next);
    }
  }
  return counts[n];
}

// `smaller` is the smaller of the two samples' u, and whole.
double ExactP(size_t m, size_t n, double smaller) {
  const std::vector<double> counts = CountsOfU(m, n);
  double tail = 0, all = 0;
  for (size_t u = 0; u < counts.size(); ++u) {
    all += counts[u];
    if (static_cast<double>(u) <= smaller) tail += counts[u];
  }
  return std::min(1.0, 2 * tail / all);
}

// The sum of t^3 - t over groups of t equal values.
double TiesOf(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  double ties = 0;
  for (auto first = values.begin(); first != values.end();) {
    const auto last = std::upper_bound(first, values.end(), *first);
    const double t = static_cast<double>(last - first);
    ties += t * t * t - t;
    first = last;
  }
  return ties;
}

double NormalP(double m, double n, double smaller, double ties) {
  const double all = m + n;
  const double variance =
      m * n / 12 * (all + 1 - ties / (all * std::max(all - 1, 1.0)));
  const double distance = m * n / 2 - smaller - 0.5;
  if (variance <= 0 || distance <= 0) return 1;
  return std::erfc(distance / std::sqrt(2 * variance));
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

double StandardDeviation(absl::Span<const double> sample) {
  if (sample.size() < 2) return std::numeric_limits<double>::quiet_NaN();
  const double mean = Mean(sample);
  double squares = 0;
  for (double x : sample) squares += (x - mean) * (x - mean);
  return std::sqrt(squares / static_cast<double>(sample.size() - 1));
}

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

MannWhitney MannWhitneyTest(absl::Span<const double> a,
                            absl::Span<const double> b) {
  assert(!a.empty() && !b.empty());
  MannWhitney result;
  std::vector<double> sorted(b.begin(), b.end()), all = sorted;
  std::sort(sorted.begin(), sorted.end());
  for (double x : a) {
    const auto [below, above] =
        std::equal_range(sorted.begin(), sorted.end(), x);
    result.u += static_cast<double>(below - sorted.begin()) +
                static_cast<double>(above - below) / 2;
    all.push_back(x);
  }
  const double m = static_cast<double>(a.size());
  const double n = static_cast<double>(b.size());
  const double smaller = std::min(result.u, m * n - result.u);
  const double ties = TiesOf(std::move(all));
  result.exact =
      ties == 0 && std::max(a.size(), b.size()) <= kLargestExactSample;
  result.p_value = result.exact
                       ? ExactP(a.size(), b.size(), smaller)
                       : std::max(NormalP(m, n, smaller, ties),
                                  SmallestMannWhitneyP(a.size(), b.size()));
  return result;
}

double SmallestMannWhitneyP(size_t m, size_t n) {
  double ways = 1;  // to choose i of n + i, i growing to m
  for (size_t i = 1; i <= m; ++i) {
    ways *= static_cast<double>(n + i) / static_cast<double>(i);
  }
  return std::min(1.0, 2 / ways);
}

}  // namespace rankwise
