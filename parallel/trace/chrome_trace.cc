#include "parallel/trace/chrome_trace.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <ostream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "records/replace_file.h"

namespace rankwise {
namespace {

using Json = nlohmann::ordered_json;

// Whole nanoseconds, so that bars that end together also do so after rounding.
int64_t Nanoseconds(double seconds) { return std::llround(seconds * 1e9); }
double Microseconds(int64_t nanoseconds) {
  return static_cast<double>(nanoseconds) * 1e-3;
}

// The bars of one lane, each on one of its rows.
struct Lane {
  std::string name;
  // By row: ends of the bars still open, the innermost last.
  std::vector<std::vector<int64_t>> rows = {{}};

  // Returns the first row in which the bar crosses no other. Call in order of
  // start.
  int Place(int64_t start, int64_t end, bool nests) {
    for (size_t row = 0; row < rows.size(); ++row) {
      std::vector<int64_t>& ends = rows[row];
      while (!ends.empty() && ends.back() <= start) ends.pop_back();
      if (!ends.empty() && (!nests || ends.back() < end)) continue;
      ends.push_back(end);
      return static_cast<int>(row);
    }
    rows.push_back({end});
    return static_cast<int>(rows.size()) - 1;
  }
};

struct Placed {
  const TraceSpan* span = nullptr;
  int64_t start = 0, end = 0;
  size_t lane = 0;
  int row = 0;  // within the lane
};

class ProcessText {
 public:
  ProcessText(const TraceProcess& process, double origin_seconds)
      : process_(process), origin_(Nanoseconds(origin_seconds)) {}

  std::string Render() {
    Json name = {{"name", process_.name}};
    name.update(process_.args);
    Metadata("process_name", std::move(name), 0);
    Metadata("process_sort_index", {{"sort_index", process_.number}}, 0);
    for (const std::string& lane : process_.lanes) LaneCalled(lane);
    const std::vector<Placed> placed = Place();
    std::vector<int> first_rows;
    int rows = 0;
    for (const Lane& lane : lanes_) {
      first_rows.push_back(rows);
      for (size_t i = 0; i < lane.rows.size(); ++i) {
        NameRow(lane.name, i, rows++);
      }
    }
    for (const Placed& each : placed)
      Complete(each, first_rows[each.lane] + each.row);
    return std::move(text_);
  }

 private:
  size_t LaneCalled(const std::string& name) {
    for (size_t i = 0; i < lanes_.size(); ++i) {
      if (lanes_[i].name == name) return i;
    }
    lanes_.push_back({name});
    return lanes_.size() - 1;
  }

  // In order of start; of two that start together, the longer first, since it
  // may contain the other.
  std::vector<Placed> Place() {
    std::vector<Placed> placed;
    for (const TraceSpan& span : process_.spans) {
      const int64_t start = Nanoseconds(span.start_seconds) - origin_;
      const int64_t end =
          std::max(start, Nanoseconds(span.end_seconds) - origin_);
      placed.push_back({&span, start, end, LaneCalled(span.lane), 0});
    }
    std::stable_sort(
        placed.begin(), placed.end(), [](const Placed& a, const Placed& b) {
          return std::pair(a.start, -a.end) < std::pair(b.start, -b.end);
        });
    for (Placed& each : placed)
      each.row =
          lanes_[each.lane].Place(each.start, each.end, each.span->nests);
    return placed;
  }

  void NameRow(const std::string& lane, size_t row_of_lane, int row) {
    const std::string name =
        row_of_lane == 0 ? lane : absl::StrCat(lane, " ", row_of_lane + 1);
    Metadata("thread_name", {{"name", name}}, row);
    Metadata("thread_sort_index", {{"sort_index", row}}, row);
  }

  void Complete(const Placed& placed, int row) {
    const TraceSpan& span = *placed.span;
    Json event = {{"ph", "X"},
                  {"name", span.name},
                  {"cat", span.category},
                  {"pid", process_.number},
                  {"tid", row},
                  {"ts", Microseconds(placed.start)},
                  {"dur", Microseconds(placed.end - placed.start)},
                  {"args", span.args}};
    if (!span.colour.empty()) event["cname"] = span.colour;
    Event(event);
  }

  void Metadata(const char* name, Json arguments, int row) {
    Event({{"ph", "M"},
           {"name", name},
           {"pid", process_.number},
           {"tid", row},
           {"args", std::move(arguments)}});
  }

  // The names of a program's operators may not be UTF-8.
  void Event(const Json& event) {
    absl::StrAppend(&text_, text_.empty() ? "" : ",\n",
                    event.dump(-1, ' ', false, Json::error_handler_t::replace));
  }

  const TraceProcess& process_;
  const int64_t origin_;
  std::vector<Lane> lanes_;
  std::string text_;
};

}  // namespace

std::string RenderProcess(const TraceProcess& process, double origin_seconds) {
  return ProcessText(process, origin_seconds).Render();
}

absl::Status WriteTraceFile(const std::string& path,
                            absl::Span<const std::string> texts) {
  return ReplaceFile(path, [&](std::ostream& out) {
    out << "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[";
    const char* separator = "\n";
    for (const std::string& text : texts) {
      if (text.empty()) continue;
      out << std::exchange(separator, ",\n") << text;
    }
    out << "\n]}\n";
  });
}

}  // namespace rankwise
