// How right the planner is about layouts that were run: their steps and memory
// next to what it says, and what its first choices cost (docs/plan.md,
// "Scored").
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
absl::StatusOr<Score> ScorePlans(absl::Span<const RunTrace> runs,
                                 const ScoreConfig& config);

// Cluster::deviation by what the planner is off by in the layouts recorded in
// `precision`; of fewer than three, `cluster`'s own.
double RecordedDeviation(absl::Span<const RunTrace> runs,
                         const std::string& precision, const Cluster& cluster);

// A table with a row per layout, and one with a row per choice.
std::vector<Table> PlanScoreTables(const Score& score);

// These, the median error, the coverage and width of the ranges and, if there
// are choices, their median regret, in sentences; and what was not scored.
std::string PlanScoreText(const Score& score);

}  // namespace rankwise::plan

#endif  // RANKWISE_ANALYSIS_PLAN_SCORE_H_
