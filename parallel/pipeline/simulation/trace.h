// Timelines as files for Perfetto (ui.perfetto.dev) and chrome://tracing, and
// as text for a terminal.
#ifndef RANKWISE_PARALLEL_PIPELINE_SIMULATION_TRACE_H_
#define RANKWISE_PARALLEL_PIPELINE_SIMULATION_TRACE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "parallel/pipeline/simulation/simulate.h"
#include "parallel/trace/chrome_trace.h"

namespace rankwise {

struct NamedTimeline {
  std::string name;  // "simulated", "predicted"
  const Timeline* timeline = nullptr;
};

// Returns "F3 (stage 1)", the name of an action in traces and ranges.
std::string TraceName(const Action& action);

// Returns the span as a bar of `lane`.
TraceSpan ToTraceSpan(const Span& span, const std::string& lane);

// Returns one process per timeline: a rank has one row for its computation and
// enough rows for overlapping communication. Adds `shift_seconds` to all times.
TraceProcess ToTraceProcess(const NamedTimeline& timeline, int number,
                            double shift_seconds);

// Replaces `path` by a file in Chrome's trace event format, with one process
// per timeline. All timelines start at time 0. An error names the file.
absl::Status WriteTrace(const std::string& path,
                        absl::Span<const NamedTimeline> timelines);

// Returns one line per rank, at most `width` columns wide with time running to
// the right, and a legend line. Shows computation only. An action appears as
// its name if there is room, else as a character for the last digit of its
// micro-batch. Of two actions that start together, the second is drawn after
// the end of the first.
// Returns "" if the timeline is too large: more actions on a rank than columns,
// or more than 64 ranks.
std::string DrawTimeline(const Timeline& timeline, int width);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_PIPELINE_SIMULATION_TRACE_H_
