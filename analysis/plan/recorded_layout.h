// The model and the layout of a recorded run.
#ifndef RANKWISE_ANALYSIS_PLAN_RECORDED_LAYOUT_H_
#define RANKWISE_ANALYSIS_PLAN_RECORDED_LAYOUT_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "analysis/plan/layout.h"
#include "analysis/plan/model.h"
#include "records/record.h"

namespace rankwise::plan {

// By the run's flags. FailedPrecondition where it is no gpt, and where the
// flags do not give the operations that were recorded.
absl::StatusOr<Model> ModelOf(const RunRecord& run);

// Whether the rank's device was the CPU.
bool RanOnCpu(const RunRecord& run);

// By the run's mesh and flags, for `global_batch` examples a step.
// FailedPrecondition names the trainer, or the flag whose value, that is not
// planned.
absl::StatusOr<Layout> LayoutOf(const RunRecord& run, int64_t global_batch);

}  // namespace rankwise::plan

#endif  // RANKWISE_ANALYSIS_PLAN_RECORDED_LAYOUT_H_
