// Steps of pipelines, and of replicas of them, in schedules and numbers of
// micro-batches that need not have been run.

#ifndef ANALYSIS_PREDICTION_PIPELINE_LAYOUT_H_
#define ANALYSIS_PREDICTION_PIPELINE_LAYOUT_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "analysis/cost_model/network_model.h"
#include "analysis/prediction/layout.h"
#include "analysis/prediction/recorded_pipeline.h"
#include "analysis/prediction/simulated_layout.h"

namespace rankwise {

// FailedPrecondition, with the command that would record what is missing, where
// no timeline fits: of as many stages on as many ranks, micro-batches as large,
// and a backward that is cut where the schedule cuts it. `gradient_bytes`: of
// the whole model, for replicas whose traffic was not recorded; 0: not known.
absl::StatusOr<SimulatedLayout> SimulatePipelineLayout(
    absl::Span<const RecordedPipeline> recordings, const Layout& layout,
    double gradient_bytes, const NetworkModel& network);

}  // namespace rankwise

#endif  // ANALYSIS_PREDICTION_PIPELINE_LAYOUT_H_
