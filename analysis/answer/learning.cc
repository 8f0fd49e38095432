// Time to a training loss, and staleness of gradients.

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/answer/answer.h"
#include "analysis/answer/tables.h"
#include "analysis/stats/statistics.h"
#include "analysis/text/table.h"
#include "records/text.h"

namespace rankwise {
namespace {

using Counts = std::map<int64_t, int64_t>;  // number of pushes by staleness

void AddStaleness(const std::string& configuration, const char* unit,
                  const Counts& counts, Table& table) {
  constexpr int64_t kShown = 8;  // the last column, which includes larger ones
  std::map<int64_t, double> shown;
  double all = 0;
  for (const auto& [staleness, count] : counts) {
    shown[std::min(staleness, kShown)] += static_cast<double>(count);
    all += static_cast<double>(count);
  }
  table.AddRow();
  table.Add("configuration", "configuration", Word(configuration), kLeft);
  table.Add("in", "unit", Word(unit), kLeft);
  for (int64_t staleness = 0; staleness <= kShown; ++staleness) {
    const double share = shown[staleness] / all;
    const bool is_last = staleness == kShown;
    table.Add(absl::StrCat(staleness, is_last ? " or more" : ""),
              absl::StrCat("share_of_", staleness, is_last ? "_or_more" : ""),
              share == 0 ? Number(share, "-") : Share(share), 0, "-");
  }
  table.Add("at most", "most", Whole(counts.rbegin()->first));
}

}  // namespace

CellLearning LearningOf(const Cell& cell, absl::Span<const RunTrace> runs,
                        double target_loss) {
  CellLearning learning = {&cell};
  std::vector<double> rates;
  for (size_t index : cell.run_indices) {
    if (target_loss > 0) {
      rates.push_back(ConcurrentExamplesPerSecond(runs[index]));
      const double seconds = SecondsToLoss(runs[index], target_loss);
      if (!std::isnan(seconds)) learning.seconds.push_back(seconds);
    }
    const Staleness staleness = StalenessOf(runs[index]);
    for (const auto& [value, count] : staleness.rounds)
      learning.staleness.rounds[value] += count;
    for (const auto& [value, count] : staleness.updates)
      learning.staleness.updates[value] += count;
  }
  learning.examples_per_second = Median(rates);
  return learning;
}

std::vector<Table> LearningTables(const Answer& answer) {
  Table times = {
      "learning-table", "Time to a training loss",
      absl::StrFormat("Median seconds to a training loss of %g, over the runs "
                      "that reached it, and the rate while all ranks train:",
                      answer.target_loss)};
  Table stale = {"staleness-table", "Staleness of gradients",
                 "Rounds of the slowest worker and updates that were missing "
                 "in the parameters of a gradient, shares of all pushes:"};
  const Labels labels(answer.cells);
  const RateColumn rate(answer.cells);
  for (const CellLearning& one : answer.learning) {
    const std::string configuration = labels.Of(one.cell);
    if (answer.target_loss > 0) {
      times.AddRow();
      times.Add("configuration", "configuration", Word(configuration), kLeft);
      times.Add("runs", "runs", Whole(std::ssize(one.cell->repetitions)));
      times.Add("reached it", "runs_that_reached_it",
                Whole(std::ssize(one.seconds)));
      times.Add("seconds", "seconds", Fixed(Median(one.seconds), 2));
      times.Add(rate.name(), RateName(rate.name()),
                Fixed(rate.Of(*one.cell, one.examples_per_second), 0));
    }
    if (one.staleness.rounds.empty()) continue;
    AddStaleness(configuration, "rounds", one.staleness.rounds, stale);
    AddStaleness(configuration, "updates", one.staleness.updates, stale);
  }
  return {times, stale};
}

Finding TimeToLoss(const Answer& answer) {
  if (answer.target_loss <= 0) return {};
  std::string text = "No run reached it.";
  double least = HUGE_VAL;
  for (const CellLearning& one : answer.learning) {
    const double seconds = Median(one.seconds);
    if (one.seconds.empty() || seconds >= least) continue;
    least = seconds;
    text = absl::StrFormat("%s reached it first: %.2f s (median of %s).",
                           one.cell->Name(), seconds,
                           Counted(std::ssize(one.seconds), "run"));
  }
  return {absl::StrFormat("Time to a training loss of %g", answer.target_loss),
          text};
}

Finding HowStale(const Answer& answer) {
  std::string text;
  int64_t most = -1;
  for (const auto& [cell, seconds, rate, staleness] : answer.learning) {
    if (staleness.rounds.empty()) continue;
    const int64_t rounds = staleness.rounds.rbegin()->first;
    if (rounds <= most) continue;
    most = rounds;
    text = absl::StrCat(
        cell->Name(), ": at most ", Counted(rounds, "round"), " and ",
        Counted(staleness.updates.rbegin()->first, "update"), ".");
  }
  return {"How stale gradients were when they were applied", text};
}

}  // namespace rankwise
