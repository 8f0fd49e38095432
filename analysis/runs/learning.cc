// Time to reach a loss, and staleness of gradients.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "analysis/runs/run_trace.h"

namespace rankwise {

double SecondsToLoss(const RunTrace& run, double loss) {
  constexpr size_t kSteps = 10;                 // averaging window per rank
  std::vector<std::pair<double, double>> seen;  // seconds, loss
  size_t ranks = 0;
  for (const RankTrace& rank : run.ranks) {
    double seconds = 0;
    const size_t before = seen.size();
    for (const StepRecord& step : rank.steps) {
      seconds += step.step_seconds;
      if (step.examples > 0) seen.emplace_back(seconds, step.loss);
    }
    ranks += seen.size() > before ? 1 : 0;
  }
  std::stable_sort(seen.begin(), seen.end(), [](const auto& a, const auto& b) {
    return a.first < b.first;
  });
  const size_t window = kSteps * ranks;
  // Sum of the window's finite losses: subtracting a non-finite loss would not
  // restore the sum.
  double sum = 0;
  int not_finite = 0;
  const auto add = [&](double one, int sign) {
    if (std::isfinite(one)) {
      sum += sign * one;
    } else {
      not_finite += sign;
    }
  };
  for (size_t i = 0; i < seen.size(); ++i) {
    add(seen[i].second, 1);
    if (i >= window) add(seen[i - window].second, -1);
    if (i + 1 >= window && not_finite == 0 &&
        sum <= loss * static_cast<double>(window))
      return seen[i].first;
  }
  return std::numeric_limits<double>::quiet_NaN();
}

double ConcurrentExamplesPerSecond(const RunTrace& run) {
  double rate = 0;
  for (const RankTrace& rank : run.ranks) {
    double examples = 0, seconds = 0;
    for (size_t i = 1; i < rank.steps.size(); ++i) {
      examples += static_cast<double>(rank.steps[i].examples);
      seconds += rank.steps[i].step_seconds;
    }
    if (examples > 0) rate += examples / seconds;
  }
  if (rate == 0) return 0;
  return rate / static_cast<double>(RanksSharingExamples(run));
}

Staleness StalenessOf(const RunTrace& run) {
  Staleness staleness;
  for (const RankTrace& rank : run.ranks) {
    for (const UpdateRecord& update : rank.updates) {
      ++staleness.rounds[update.round - 1 - update.read_round];
      ++staleness.updates[update.version - 1 - update.read_version];
    }
  }
  return staleness;
}

}  // namespace rankwise
