// Timelines as files for Perfetto (ui.perfetto.dev) and chrome://tracing, in
// Chrome's trace event format.
#ifndef RANKWISE_PARALLEL_TRACE_CHROME_TRACE_H_
#define RANKWISE_PARALLEL_TRACE_CHROME_TRACE_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "nlohmann/json.hpp"

namespace rankwise {

// One bar of the timeline.
struct TraceSpan {
  std::string lane;  // of its process, such as "compute"
  std::string name;
  std::string category;
  std::string colour = {};  // name of a chrome://tracing colour, or ""
  double start_seconds = 0, end_seconds = 0;
  // Drawn inside a longer bar of the same lane. Other overlapping bars are
  // drawn below each other, in separate rows.
  bool nests = true;
  nlohmann::ordered_json args = nlohmann::ordered_json::object();
};

// A group of lanes: the timeline of one rank.
struct TraceProcess {
  int number = 0;  // position among the processes shown
  std::string name;
  // Shown in this order, even if empty, before other lanes.
  std::vector<std::string> lanes = {};
  std::vector<TraceSpan> spans = {};
  nlohmann::ordered_json args = nlohmann::ordered_json::object();
};

// Returns the process's events as text, one per line, with times since
// `origin_seconds`. Texts of different processes can be combined in one file.
std::string RenderProcess(const TraceProcess& process, double origin_seconds);

// Replaces `path` by a file of the events in `texts`, like ReplaceFile. Errors
// name the file.
absl::Status WriteTraceFile(const std::string& path,
                            absl::Span<const std::string> texts);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_TRACE_CHROME_TRACE_H_
