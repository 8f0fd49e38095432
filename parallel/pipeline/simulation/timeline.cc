#include "parallel/pipeline/simulation/timeline.h"

#include <algorithm>
#include <numeric>

namespace rankwise {
namespace {

double IdleShare(double busy_seconds, double seconds) {
  return seconds > 0 ? (seconds - busy_seconds) / seconds : 0;
}

double Mean(const std::vector<double>& values) {
  if (values.empty()) return 0;
  return std::accumulate(values.begin(), values.end(), 0.0) /
         static_cast<double>(values.size());
}

}  // namespace

Extent ExtentOf(const std::vector<Span>& spans) {
  Extent extent;
  for (const Span& span : spans) {
    if (!IsCompute(span.action.kind)) continue;
    extent.overlapped_seconds +=
        std::max(0.0, std::min(span.end_seconds, extent.end_seconds) -
                          span.start_seconds);
    extent.start_seconds = std::min(extent.start_seconds, span.start_seconds);
    extent.end_seconds = std::max(extent.end_seconds, span.end_seconds);
    (span.action.kind == ActionKind::kForward ? extent.forward_seconds
                                              : extent.backward_seconds) +=
        span.end_seconds - span.start_seconds;
  }
  return extent;
}

Bubbles MeasureBubbles(const Timeline& timeline) {
  Bubbles bubbles;
  std::vector<Extent> extents;
  Extent all;
  for (const std::vector<Span>& spans : timeline.ranks) {
    extents.push_back(ExtentOf(spans));
    all.start_seconds =
        std::min(all.start_seconds, extents.back().start_seconds);
    all.end_seconds = std::max(all.end_seconds, extents.back().end_seconds);
  }
  bubbles.wall_seconds = all.seconds();
  for (const Extent& extent : extents) {
    bubbles.busy_seconds.push_back(extent.busy_seconds());
    bubbles.span_per_rank.push_back(
        IdleShare(extent.busy_seconds(), extent.seconds()));
    bubbles.wall_per_rank.push_back(
        IdleShare(extent.busy_seconds(), all.seconds()));
  }
  bubbles.span = Mean(bubbles.span_per_rank);
  bubbles.wall = Mean(bubbles.wall_per_rank);
  return bubbles;
}

}  // namespace rankwise
