#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "analysis/answer/answer.h"
#include "analysis/stats/statistics.h"
#include "records/text.h"

namespace rankwise {
namespace {

// "parameter_server ssp:2 on 4 ranks: 12.50 s (median of 5 runs), at 1234
// images/s while all train."
std::string TimeSentence(const Cell& cell, absl::Span<const RunTrace> runs,
                         const RateColumn& rate, double loss) {
  std::vector<double> seconds, rates;
  for (size_t index : cell.run_indices) {
    rates.push_back(ConcurrentExamplesPerSecond(runs[index]));
    const double reached = SecondsToLoss(runs[index], loss);
    if (!std::isnan(reached)) seconds.push_back(reached);
  }
  const std::string runs_text =
      seconds.size() == cell.run_indices.size()
          ? Counted(seconds.size(), "run")
          : absl::StrCat(seconds.size(), " of ",
                         Counted(cell.run_indices.size(), "run"));
  return absl::StrFormat("%s: %s, at %.0f %s while all train.", cell.Name(),
                         seconds.empty()
                             ? "not reached"
                             : absl::StrFormat("%.2f s (median of %s)",
                                               Median(seconds), runs_text),
                         rate.Of(cell, Median(rates)), rate.name());
}

// "0: 60.0 %, 1: 35.0 %, 8 or more: 5.0 %; at most 12".
std::string Histogram(const std::map<int64_t, int64_t>& counts) {
  constexpr int64_t kShown = 8;  // with all that are above it
  std::map<int64_t, double> shown;
  double all = 0;
  for (const auto& [value, count] : counts) {
    shown[std::min(value, kShown)] += static_cast<double>(count);
    all += static_cast<double>(count);
  }
  std::vector<std::string> parts;
  for (const auto& [value, count] : shown) {
    parts.push_back(absl::StrFormat("%d%s: %.1f %%", value,
                                    value == kShown ? " or more" : "",
                                    100 * count / all));
  }
  return absl::StrCat(absl::StrJoin(parts, ", "), "; at most ",
                      counts.rbegin()->first);
}

std::string StalenessSentence(const Cell& cell,
                              absl::Span<const RunTrace> runs) {
  Staleness all;
  for (size_t index : cell.run_indices) {
    const Staleness one = StalenessOf(runs[index]);
    for (const auto& [value, count] : one.rounds) all.rounds[value] += count;
    for (const auto& [value, count] : one.updates) all.updates[value] += count;
  }
  if (all.rounds.empty()) return "";
  return absl::StrCat(cell.Name(), ": in rounds ", Histogram(all.rounds),
                      ". In updates ", Histogram(all.updates), ".");
}

}  // namespace

std::vector<Finding> LearningFindings(absl::Span<const Cell> cells,
                                      absl::Span<const RunTrace> runs,
                                      double target_loss) {
  const RateColumn rate(cells);
  std::vector<std::string> times, stale;
  for (const Cell& cell : cells) {
    if (cell.IsAblation()) continue;
    if (target_loss > 0)
      times.push_back(TimeSentence(cell, runs, rate, target_loss));
    const std::string staleness = StalenessSentence(cell, runs);
    if (!staleness.empty()) stale.push_back(staleness);
  }
  std::vector<Finding> findings;
  if (!times.empty()) {
    findings.push_back(
        {absl::StrFormat("Time to a training loss of %g", target_loss),
         absl::StrJoin(times, "\n")});
  }
  if (!stale.empty()) {
    findings.push_back({"How stale gradients were when they were applied",
                        absl::StrJoin(stale, "\n")});
  }
  return findings;
}

}  // namespace rankwise
