// Timelines as files for Perfetto (ui.perfetto.dev) and chrome://tracing, and
// for a terminal.
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

// "F3 (stage 1)", as bars and ranges call an action.
std::string TraceName(const Action& action);

// Computation as a bar of `lane`.
TraceSpan ToTraceSpan(const Span& span, const std::string& lane);

// One process per timeline: a rank has one row for its computation and, for
// communication, as many as overlap. Times are `shift_seconds` later.
TraceProcess ToTraceProcess(const NamedTimeline& timeline, int number,
                            double shift_seconds);

// Replaces `path` by a file of Chrome's trace event format, with one process
// per timeline. All start at time 0, so that they can be compared. The error
// names the file.
absl::Status WriteTrace(const std::string& path,
                        absl::Span<const NamedTimeline> timelines);

// One line per rank, at most `width` columns wide, in which time runs to the
// right, and a line of legend. Shows computation only. Where there is room an
// action is its name, else a character for the last digit of its micro-batch.
// Of two that start at the same time the second is drawn from the end of the
// first on.
// Empty where the timeline is too large to be drawn: more actions on a rank
// than columns, or more than 64 ranks.
std::string DrawTimeline(const Timeline& timeline, int width);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_PIPELINE_SIMULATION_TRACE_H_
