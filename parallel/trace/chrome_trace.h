// What ran when, as a file for Perfetto (ui.perfetto.dev) and chrome://tracing:
// Chrome's trace event format.
#ifndef RANKWISE_PARALLEL_TRACE_CHROME_TRACE_H_
#define RANKWISE_PARALLEL_TRACE_CHROME_TRACE_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "nlohmann/json.hpp"

namespace rankwise {

// One bar.
struct TraceSpan {
  std::string lane;  // of its process, such as "compute"
  std::string name;
  std::string category;
  std::string colour = {};  // one of chrome://tracing's, or none
  double start_seconds = 0, end_seconds = 0;
  // Drawn inside a bar of the same lane that lasts longer. Others that overlap
  // are drawn below each other, in rows of their own.
  bool nests = true;
  nlohmann::ordered_json args = nlohmann::ordered_json::object();
};

// A group of lanes: what one rank did.
struct TraceProcess {
  int number = 0;  // processes are shown in this order
  std::string name;
  // Shown in this order, also where they are empty; before other lanes.
  std::vector<std::string> lanes = {};
  std::vector<TraceSpan> spans = {};
  nlohmann::ordered_json args = nlohmann::ordered_json::object();
};

// The process's events as text, one a line, told since `origin_seconds`. Texts
// that were made by different processes make one file.
std::string RenderProcess(const TraceProcess& process, double origin_seconds);

// Replaces `path` by a file of the events in `texts`, as ReplaceFile does. The
// error names the file.
absl::Status WriteTraceFile(const std::string& path,
                            absl::Span<const std::string> texts);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_TRACE_CHROME_TRACE_H_
