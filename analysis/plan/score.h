// How right the planner is about layouts that were run: their steps and memory
// next to what it says, and what its first choices cost (docs/plan.md,
// "Scored").
#ifndef RANKWISE_ANALYSIS_PLAN_SCORE_H_
#define RANKWISE_ANALYSIS_PLAN_SCORE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "analysis/plan/cluster.h"
#include "analysis/plan/layout.h"
#include "analysis/plan/step.h"
#include "analysis/runs/run_trace.h"
#include "analysis/runs/throughput.h"
#include "analysis/text/table.h"

namespace rankwise::plan {

// A recorded layout that was not used to fit.
struct ScoredLayout {
  std::string model, precision;
  Layout layout;
  int64_t hosts = 1;
  Step step;                    // as planned
  double measured_seconds = 0;  // median of the repetitions' steps
  // Of the rank that held most, by kind; 0: not recorded.
  double measured_bytes = 0;

  double Error() const { return step.seconds / measured_seconds - 1; }
  bool IsCovered() const {
    return measured_seconds >= step.interval.low &&
           measured_seconds <= step.interval.high;
  }
};

// The layouts of one model, precision, number of ranks and global batch.
struct Regret {
  size_t layouts = 0;
  ScoredLayout choice;  // the planner's first
  ScoredLayout best;    // the fastest measured

  // The choice's measured step over the best's, minus 1.
  double Share() const {
    return choice.measured_seconds / best.measured_seconds - 1;
  }
};

struct PlanScore {
  std::vector<ScoredLayout> layouts;
  std::vector<Regret> regrets;
  std::vector<std::string> left_out;  // with the reason
  std::string short_cores;            // ShortCoresText of any of the layouts
  double median_absolute_error = 0;
  double coverage = 0;  // share of the layouts
  double median_relative_width = 0;
  double median_regret = 0;  // NaN: no two layouts to choose from
};

struct ScoreConfig {
  // Recorded runs of at most this many ranks are used to fit, and the larger
  // ones are scored. 0: the runs that exchange nothing are used, and all others
  // are scored.
  int64_t fit_up_to = 0;
  double memory_bytes = 0;           // of a rank, for the choice; 0: no limit
  ThroughputConfig throughput = {};  // of the runs fitted or scored
};

// A layout's interval is as wide as the errors of the others of its precision
// are large, among those of at most `fit_up_to` ranks where that is given; of
// fewer than three, as what the fit leaves open. FailedPrecondition where
// nothing can be fitted or scored.
absl::StatusOr<PlanScore> ScorePlans(absl::Span<const RunTrace> runs,
                                     const ScoreConfig& config);

// Cluster::deviation by what the planner is off by in the layouts recorded in
// `precision`; of fewer than three, `cluster`'s own.
double RecordedDeviation(absl::Span<const RunTrace> runs,
                         const std::string& precision, const Cluster& cluster);

// The median error, the coverage and width of the intervals and, if there are
// choices, their median regret, in sentences.
std::string PlanScoreSummary(const PlanScore& score);

// A row per layout, and, with rows where there are choices, a row per choice.
std::vector<Table> PlanScoreTables(const PlanScore& score);

// These, the totals, and what was not scored.
std::string PlanScoreText(const PlanScore& score);

}  // namespace rankwise::plan

#endif  // RANKWISE_ANALYSIS_PLAN_SCORE_H_
