// How right plans are: recorded layouts and sizes that were not fitted, next to
// what the planner says of them.
#ifndef RANKWISE_ANALYSIS_PLAN_SCORE_H_
#define RANKWISE_ANALYSIS_PLAN_SCORE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "analysis/plan/layout.h"
#include "analysis/plan/model.h"
#include "analysis/plan/step.h"
#include "analysis/runs/cell.h"
#include "analysis/runs/run_trace.h"

namespace rankwise::plan {

// The gpt that a run trained. FailedPrecondition where it trained another kind
// of model, or one whose FLOPs per example are not those in the record.
absl::StatusOr<Model> RecordedModel(const RunRecord& run);

// How its ranks shared the work. FailedPrecondition where the planner has no
// such layout.
absl::StatusOr<Layout> RecordedLayout(const Cell& cell);

// A recorded configuration; `measured_seconds` is the median of its
// repetitions' steps.
struct ScoredLayout {
  Layout layout;
  Step step;
  bool fitted = false;  // its runs say what computing takes
  double measured_seconds = 0;
  double measured_bytes = 0;  // of the fullest rank; 0: not known

  double Error() const { return step.seconds / measured_seconds - 1; }
  bool IsCovered() const;
};

struct PlanScore {
  std::vector<ScoredLayout> points;   // the fitted ones too
  std::vector<std::string> left_out;  // recorded, but not predicted, and why
};

// Takes computing from runs of single, ddp and fsdp of at most `fit_up_to`
// ranks and communication from comm_bench's of as many, and predicts all
// others. The intervals are as wide as the fitted runs' distances from what is
// predicted for them. FailedPrecondition where either side is empty.
absl::StatusOr<PlanScore> ScorePlans(absl::Span<const RunTrace> runs,
                                     int64_t fit_up_to);

// The points that were not fitted with the median error and the coverage; the
// regret of choosing by prediction among layouts of as many ranks and examples;
// the memory of all.
std::string PlanScoreText(const PlanScore& score);

}  // namespace rankwise::plan

#endif  // RANKWISE_ANALYSIS_PLAN_SCORE_H_
