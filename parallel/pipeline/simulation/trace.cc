#include "parallel/pipeline/simulation/trace.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "parallel/pipeline/schedule/actions.h"

namespace rankwise {
namespace {

struct Look {
  const char* category;
  const char* colour;  // one of chrome://tracing's; Perfetto has its own
};

Look LookOf(ActionKind kind) {
  constexpr Look kOfComputation[] = {{"forward", "thread_state_running"},
                                     {"backward", "rail_response"},
                                     {"input_grad", "rail_animation"},
                                     {"weight_grad", "rail_idle"}};
  if (IsCompute(kind)) return kOfComputation[static_cast<size_t>(kind)];
  return {IsSend(kind) ? "send" : "receive", "grey"};
}

double FirstStart(const Timeline& timeline) {
  double first = std::numeric_limits<double>::infinity();
  for (const std::vector<Span>& spans : timeline.ranks) {
    for (const Span& span : spans) first = std::min(first, span.start_seconds);
  }
  return first;
}

}  // namespace

std::string TraceName(const Action& action) {
  return absl::StrCat(NameOf(action.kind), action.micro_batch, " (stage ",
                      action.stage, ")");
}

TraceSpan ToTraceSpan(const Span& span, const std::string& lane) {
  const Look look = LookOf(span.action.kind);
  TraceSpan bar;
  bar.lane = lane;
  bar.name = TraceName(span.action);
  bar.category = look.category;
  bar.colour = look.colour;
  bar.start_seconds = span.start_seconds;
  bar.end_seconds = span.end_seconds;
  bar.nests = IsCompute(span.action.kind);
  bar.args = {{"stage", span.action.stage},
              {"micro_batch", span.action.micro_batch}};
  return bar;
}

TraceProcess ToTraceProcess(const NamedTimeline& named, int number,
                            double shift_seconds) {
  TraceProcess process;
  process.number = number;
  process.name = named.name;
  for (size_t rank = 0; rank < named.timeline->ranks.size(); ++rank) {
    const std::string compute = absl::StrCat("rank ", rank);
    const std::string communication = compute + " communication";
    process.lanes.push_back(compute);
    for (const Span& span : named.timeline->ranks[rank]) {
      const bool computes = IsCompute(span.action.kind);
      if (!computes && process.lanes.back() == compute)
        process.lanes.push_back(communication);
      process.spans.push_back(
          ToTraceSpan(span, computes ? compute : communication));
      process.spans.back().start_seconds += shift_seconds;
      process.spans.back().end_seconds += shift_seconds;
    }
  }
  return process;
}

absl::Status WriteTrace(const std::string& path,
                        absl::Span<const NamedTimeline> timelines) {
  std::vector<std::string> texts;
  for (const NamedTimeline& named : timelines) {
    const int number = static_cast<int>(texts.size());
    const double first = FirstStart(*named.timeline);
    texts.push_back(RenderProcess(ToTraceProcess(named, number, 0),
                                  std::isinf(first) ? 0 : first));
  }
  return WriteTraceFile(path, texts);
}

}  // namespace rankwise
