// One step of a pipeline and its replicas, from when its actions ran.

#ifndef ANALYSIS_PREDICTION_PIPELINE_STEP_H_
#define ANALYSIS_PREDICTION_PIPELINE_STEP_H_

#include <vector>

#include "absl/types/span.h"
#include "parallel/pipeline/timeline.h"

namespace rankwise {

struct PipelineTimes {
  double step_seconds = 0;
  // Of the rank that the step waits for.
  double exposed_comm_seconds = 0;
  double bubble_seconds = 0;
};

// The step of a pipeline whose computation ran as `timeline` says. A rank that
// has left its schedule waits for the averages of its stages' gradients over
// the replicas, each started when the stage's last gradient was there and the
// average before is done, and then does what is `outside` the schedule; then
// its next step may begin, as long after that of the first rank as this one
// did. The step is that of the rank that takes longest. `scale` stretches the
// timeline, but not the computing in it: what it adds is bubble.
PipelineTimes PipelineStep(const Timeline& timeline, double scale,
                           const std::vector<std::vector<double>>& all_reduce,
                           absl::Span<const double> outside);

}  // namespace rankwise

#endif  // ANALYSIS_PREDICTION_PIPELINE_STEP_H_
