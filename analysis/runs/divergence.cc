// Detection of diverged training.
#include <cmath>
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "analysis/runs/run_trace.h"

namespace rankwise {
namespace {

// Successive steps without a finite loss after which the trainers stop under
// --precision=fp16 (docs/checkpoints.md, "Runs that diverge"): loss scaling
// skips fewer such steps in healthy training.
constexpr int64_t kNonFiniteStepsUnderFp16 = 20;

// Whether the losses are not from training: ranks exchanged nothing, or only
// data made up by the fake backend.
bool HasNoTraining(const RunRecord& run) {
  return run.world_size > 1 &&
         (SkipsCommunication(run) || run.backend == "fake");
}

// Returns the step that completes the first `in_a_row` successive steps without
// a finite loss, or nullptr.
const StepRecord* FindDiverged(const RankTrace& trace, int64_t in_a_row) {
  int64_t found = 0;
  for (const StepRecord& step : trace.steps) {
    found = std::isfinite(step.loss) ? 0 : found + 1;
    if (found == in_a_row) return &step;
  }
  return nullptr;
}

// Returns the earliest divergence recorded by the trainers, or nullptr.
const DivergenceRecord* FindRecorded(const RunTrace& run) {
  const DivergenceRecord* first = nullptr;
  for (const RankTrace& trace : run.ranks) {
    for (const DivergenceRecord& record : trace.divergences) {
      if (first == nullptr || record.step < first->step) first = &record;
    }
  }
  return first;
}

}  // namespace

std::string WhyDiverged(const RunTrace& run) {
  const RunRecord& opened = run.ranks[0].run;
  if (HasNoTraining(opened)) return "";
  const DivergenceRecord* const recorded = FindRecorded(run);
  if (recorded != nullptr)
    return absl::StrCat("the training diverged: ", recorded->cause);
  const int64_t in_a_row =
      FlagOf(opened, "precision") == "fp16" ? kNonFiniteStepsUnderFp16 : 1;
  const StepRecord* first = nullptr;
  for (const RankTrace& trace : run.ranks) {
    const StepRecord* const found =
        Serves(trace) ? nullptr : FindDiverged(trace, in_a_row);
    if (found == nullptr) continue;
    if (first == nullptr || found->step < first->step) first = found;
  }
  if (first != nullptr) {
    return absl::StrCat("the training diverged: the loss of rank ", first->rank,
                        " is ", first->loss, " in step ", first->step);
  }
  for (const RankTrace& trace : run.ranks) {
    for (const EvalRecord& evaluation : trace.evaluations) {
      if (std::isfinite(evaluation.mean_loss)) continue;
      return absl::StrCat("the training diverged: the test loss of epoch ",
                          evaluation.epoch, " is ", evaluation.mean_loss);
    }
  }
  return "";
}

}  // namespace rankwise
