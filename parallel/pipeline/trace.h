// Timelines as files for Perfetto (ui.perfetto.dev) and chrome://tracing.
#ifndef RANKWISE_PARALLEL_PIPELINE_TRACE_H_
#define RANKWISE_PARALLEL_PIPELINE_TRACE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "parallel/pipeline/timeline.h"

namespace rankwise {

struct NamedTimeline {
  std::string name;  // "simulated", "measured"
  const Timeline* timeline = nullptr;
};

// Replaces `path` by a file of Chrome's trace event format, with one process
// per timeline. All start at time 0, so that they can be compared. A rank has
// one row for its computation and, for communication, as many as overlap. The
// error names the file.
absl::Status WriteTrace(const std::string& path,
                        absl::Span<const NamedTimeline> timelines);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_PIPELINE_TRACE_H_
