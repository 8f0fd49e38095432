#include "parallel/pipeline/trace.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <ostream>
#include <vector>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "parallel/pipeline/actions.h"
#include "parallel/pipeline/replace_file.h"

namespace rankwise {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kMicrosecondsPerSecond = 1e6;

struct Look {
  const char* category;
  const char* colour;  // one of chrome://tracing's; Perfetto has its own
};

Look LookOf(ActionKind kind) {
  switch (kind) {
    case ActionKind::kForward:
      return {"forward", "thread_state_running"};
    case ActionKind::kBackward:
      return {"backward", "rail_response"};
    case ActionKind::kInputGrad:
      return {"input_grad", "rail_animation"};
    case ActionKind::kWeightGrad:
      return {"weight_grad", "rail_idle"};
    default:
      return {IsSend(kind) ? "send" : "receive", "grey"};
  }
}

double FirstStart(const Timeline& timeline) {
  double first = std::numeric_limits<double>::infinity();
  for (const std::vector<Span>& spans : timeline.ranks) {
    for (const Span& span : spans) first = std::min(first, span.start_seconds);
  }
  return first;
}

// Writes the events of one file.
class EventWriter {
 public:
  explicit EventWriter(std::ostream& out) : out_(out) {
    out_ << "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[";
  }

  void Add(int process, const NamedTimeline& named) {
    process_ = process;
    row_ = 0;
    Metadata("process_name", {{"name", named.name}});
    Metadata("process_sort_index", {{"sort_index", process}});
    const double origin = FirstStart(*named.timeline);
    for (size_t rank = 0; rank < named.timeline->ranks.size(); ++rank) {
      AddRank(rank, named.timeline->ranks[rank], origin);
    }
  }

  void Finish() { out_ << "\n]}\n"; }

 private:
  // Rows are "threads"; spans on one must not overlap.
  void AddRank(size_t rank, const std::vector<Span>& spans, double origin) {
    const int compute_row = StartRow(absl::StrCat("rank ", rank));
    struct Row {
      int number;
      double free_from_seconds;
    };
    std::vector<Row> communication_rows;
    for (const Span& span : spans) {
      if (IsCompute(span.action.kind)) {
        Complete(span, compute_row, origin);
        continue;
      }
      auto row =
          std::find_if(communication_rows.begin(), communication_rows.end(),
                       [&](const Row& row) {
                         return row.free_from_seconds <= span.start_seconds;
                       });
      if (row == communication_rows.end()) {
        const int number =
            StartRow(absl::StrCat("rank ", rank, " communication"));
        row = communication_rows.insert(row, Row{number, 0});
      }
      row->free_from_seconds = span.end_seconds;
      Complete(span, row->number, origin);
    }
  }

  int StartRow(const std::string& name) {
    const int row = row_++;
    Metadata("thread_name", {{"name", name}}, row);
    Metadata("thread_sort_index", {{"sort_index", row}}, row);
    return row;
  }

  void Complete(const Span& span, int row, double origin) {
    const Action& action = span.action;
    const Look look = LookOf(action.kind);
    Event({{"ph", "X"},
           {"name", absl::StrCat(NameOf(action.kind), action.micro_batch,
                                 " (stage ", action.stage, ")")},
           {"cat", look.category},
           {"cname", look.colour},
           {"pid", process_},
           {"tid", row},
           {"ts", (span.start_seconds - origin) * kMicrosecondsPerSecond},
           {"dur",
            (span.end_seconds - span.start_seconds) * kMicrosecondsPerSecond},
           {"args",
            {{"stage", action.stage}, {"micro_batch", action.micro_batch}}}});
  }

  void Metadata(const char* name, Json arguments, int row = 0) {
    Event({{"ph", "M"},
           {"name", name},
           {"pid", process_},
           {"tid", row},
           {"args", std::move(arguments)}});
  }

  // One line per event: a large trace is never in memory as a whole.
  void Event(const Json& event) {
    out_ << (first_ ? "\n" : ",\n") << event.dump();
    first_ = false;
  }

  std::ostream& out_;
  bool first_ = true;
  int process_ = 0;
  int row_ = 0;
};

}  // namespace

absl::Status WriteTrace(const std::string& path,
                        absl::Span<const NamedTimeline> timelines) {
  return ReplaceFile(path, [&](std::ostream& out) {
    EventWriter writer(out);
    for (size_t i = 0; i < timelines.size(); ++i) {
      writer.Add(static_cast<int>(i), timelines[i]);
    }
    writer.Finish();
  });
}

}  // namespace rankwise
