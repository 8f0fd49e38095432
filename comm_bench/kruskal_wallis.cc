#include "comm_bench/kruskal_wallis.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <numeric>
#include <random>

namespace rankwise::comm_bench {
namespace {

constexpr int kAssignments = 199;
// Sums of the same ranks in another order may differ by rounding.
constexpr double kTolerance = 1e-12;

// Ranks from 1; equal values share their mean rank.
std::vector<double> RanksOf(const std::vector<double>& values) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(),
            [&values](size_t a, size_t b) { return values[a] < values[b]; });
  std::vector<double> ranks(values.size());
  for (size_t begin = 0, end = 0; begin < order.size(); begin = end) {
    end = begin + 1;
    while (end < order.size() && values[order[end]] == values[order[begin]]) {
      ++end;
    }
    const double mean = (static_cast<double>(begin + end) + 1) / 2;
    for (size_t i = begin; i < end; ++i) ranks[order[i]] = mean;
  }
  return ranks;
}

// Of the statistic H, the part that depends on which ranks are whose.
double Statistic(absl::Span<const double> ranks,
                 absl::Span<const std::vector<double>> samples) {
  double statistic = 0;
  size_t begin = 0;
  for (const std::vector<double>& sample : samples) {
    const absl::Span<const double> own = ranks.subspan(begin, sample.size());
    const double sum = std::accumulate(own.begin(), own.end(), 0.0);
    statistic += sum * sum / static_cast<double>(sample.size());
    begin += sample.size();
  }
  return statistic;
}

}  // namespace

double KruskalWallisPValue(absl::Span<const std::vector<double>> samples) {
  if (samples.size() < 2) return std::numeric_limits<double>::quiet_NaN();
  std::vector<double> values;
  for (const std::vector<double>& sample : samples) {
    values.insert(values.end(), sample.begin(), sample.end());
  }
  std::vector<double> ranks = RanksOf(values);
  const double observed = Statistic(ranks, samples) * (1 - kTolerance);
  std::mt19937_64 random(values.size());
  int as_extreme = 1;  // the assignment observed
  for (int i = 0; i < kAssignments; ++i) {
    std::shuffle(ranks.begin(), ranks.end(), random);
    if (Statistic(ranks, samples) >= observed) ++as_extreme;
  }
  return as_extreme / (kAssignments + 1.0);
}

}  // namespace rankwise::comm_bench
