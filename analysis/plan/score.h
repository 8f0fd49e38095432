// Accuracy of the planner on recorded layouts: predicted and measured steps and
// memory, and the cost of its first choices (docs/plan.md, "Scored").
#ifndef RANKWISE_ANALYSIS_PLAN_SCORE_H_
#define RANKWISE_ANALYSIS_PLAN_SCORE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "analysis/plan/cluster.h"
#include "analysis/prediction/prediction.h"
#include "analysis/runs/run_trace.h"
#include "analysis/runs/throughput.h"
#include "analysis/text/table.h"

namespace rankwise::plan {

struct ScoreConfig {
  // Fits recorded runs of at most this many ranks and scores the larger ones.
  // If 0, fits the runs without communication and scores all others.
  int64_t fit_up_to = 0;
  double memory_bytes = 0;  // limit per rank for the choice; 0 for no limit
  ThroughputConfig throughput = {};  // of the runs fitted or scored
};

// The width of a layout's interval follows from the errors of the other layouts
// of its precision, of at most `fit_up_to` ranks if that is given; if there are
// fewer than three, from the uncertainty of the fit. FailedPrecondition if
// there is nothing to fit or to score.
absl::StatusOr<Score> ScorePlans(absl::Span<const RunTrace> runs,
                                 const ScoreConfig& config);

// Returns Cluster::deviation estimated from the planner's errors in the layouts
// recorded in `precision`; `cluster`'s own if there are fewer than three.
double RecordedDeviation(absl::Span<const RunTrace> runs,
                         const std::string& precision, const Cluster& cluster);

// Returns a table with a row per layout, and one with a row per choice.
std::vector<Table> PlanScoreTables(const Score& score);

// Returns these tables; the median error, the ranges' coverage and width and,
// if there are choices, their median regret, in sentences; and the cells not
// scored.
std::string PlanScoreText(const Score& score);

}  // namespace rankwise::plan

#endif  // RANKWISE_ANALYSIS_PLAN_SCORE_H_
