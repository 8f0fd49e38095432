#include "trainers/timeline_record.h"

#include <algorithm>
#include <string>

#include "parallel/pipeline/actions.h"

namespace rankwise {

TimelineRecord ToTimelineRecord(const std::vector<Span>& spans,
                                double origin_seconds) {
  TimelineRecord record;
  // Times of two hosts are equal up to an error, but never negative.
  const auto since = [origin_seconds](double seconds) {
    return std::max(0.0, seconds - origin_seconds);
  };
  for (const Span& span : spans) {
    if (!IsCompute(span.action.kind)) continue;
    record.spans.push_back({std::string(NameOf(span.action.kind)),
                            span.action.stage, span.action.micro_batch,
                            since(span.start_seconds),
                            since(span.end_seconds)});
  }
  return record;
}

}  // namespace rankwise
