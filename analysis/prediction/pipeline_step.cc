#include "analysis/prediction/pipeline_step.h"

#include <algorithm>
#include <cstdint>
#include <map>

namespace rankwise {
namespace {

// When the last gradient of each of a rank's stages was there, ascending.
std::vector<double> GradientsDone(const std::vector<Span>& spans) {
  std::map<int32_t, double> done;
  for (const Span& span : spans) {
    if (span.action.kind != ActionKind::kBackward &&
        span.action.kind != ActionKind::kWeightGrad)
      continue;
    double& last = done[span.action.stage];
    last = std::max(last, span.end_seconds);
  }
  std::vector<double> seconds;
  for (const auto& [stage, last] : done) seconds.push_back(last);
  std::sort(seconds.begin(), seconds.end());
  return seconds;
}

}  // namespace

PipelineTimes PipelineStep(const Timeline& timeline, double scale,
                           const std::vector<std::vector<double>>& all_reduce,
                           absl::Span<const double> outside) {
  PipelineTimes times;
  for (size_t rank = 0; rank < timeline.ranks.size(); ++rank) {
    const Extent extent = ExtentOf(timeline.ranks[rank]);
    const std::vector<double> ready = GradientsDone(timeline.ranks[rank]);
    double done = 0;
    for (size_t i = 0; i < all_reduce[rank].size() && i < ready.size(); ++i) {
      done = std::max(done, scale * ready[i]) + all_reduce[rank][i];
    }
    const double exposed = std::max(0.0, done - scale * extent.end_seconds);
    const double span = scale * extent.seconds();
    const double seconds = span + exposed + outside[rank];
    if (seconds <= times.step_seconds) continue;
    times.step_seconds = seconds;
    times.exposed_comm_seconds = exposed;
    times.bubble_seconds = std::max(0.0, span - extent.busy_seconds());
  }
  return times;
}

}  // namespace rankwise
