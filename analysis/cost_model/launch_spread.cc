#include "analysis/cost_model/launch_spread.h"

#include <cmath>
#include <map>

#include "analysis/stats/statistics.h"

namespace rankwise {
namespace {

// Calls by size and launch.
using Calls = std::map<double, std::map<int64_t, std::vector<double>>>;

Calls SortCalls(absl::Span<const CostSamples> samples) {
  Calls calls;
  for (const CostSamples& some : samples) {
    std::vector<double>& all = calls[some.bytes][some.launch];
    all.insert(all.end(), some.seconds.begin(), some.seconds.end());
  }
  return calls;
}

// The deviations of each launch, one per size that it shares with another.
std::map<int64_t, std::vector<double>> Deviations(const Calls& calls) {
  std::map<int64_t, std::vector<double>> deviations;
  for (const auto& [bytes, launches] : calls) {
    if (launches.size() < 2) continue;
    std::vector<double> all;
    for (const auto& [launch, seconds] : launches) {
      all.insert(all.end(), seconds.begin(), seconds.end());
    }
    const double median = Median(all);
    for (const auto& [launch, seconds] : launches) {
      const double deviation = std::log(Median(seconds) / median);
      if (std::isfinite(deviation)) deviations[launch].push_back(deviation);
    }
  }
  return deviations;
}

}  // namespace

LaunchSpread SpreadOfLaunches(absl::Span<const CostSamples> samples) {
  std::vector<double> shifts;
  double mean = 0;
  for (const auto& [launch, deviations] : Deviations(SortCalls(samples))) {
    shifts.push_back(Median(deviations));
    mean += shifts.back();
  }
  if (shifts.size() < 2) return {};
  const auto count = static_cast<double>(shifts.size());
  mean /= count;
  double squares = 0;
  for (const double shift : shifts) squares += (shift - mean) * (shift - mean);
  return {std::sqrt(squares / (count - 1) / count), count - 1};
}

double DrawLaunchFactor(const LaunchSpread& spread, std::mt19937_64& random) {
  if (spread.relative_error == 0) return 1;
  std::student_t_distribution<double> student(spread.degrees_of_freedom);
  return std::exp(spread.relative_error * student(random));
}

}  // namespace rankwise
