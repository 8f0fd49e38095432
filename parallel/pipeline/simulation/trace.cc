#include "parallel/pipeline/simulation/trace.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "parallel/pipeline/schedule/schedule.h"

namespace rankwise {
namespace {

struct Look {
  const char* category;
  const char* colour;  // one of chrome://tracing's names; Perfetto uses its own
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

constexpr size_t kMostRanks = 64;
constexpr char kIdle = '.';
constexpr char kFill = '=';
constexpr char kOverlapped = '+';

// Properties of all spans that drawing one requires.
struct Measures {
  double start = std::numeric_limits<double>::infinity();
  double end = -std::numeric_limits<double>::infinity();
  // Shortest positive duration.
  double shortest = std::numeric_limits<double>::infinity();
  size_t most_spans = 0;  // on one rank
  std::set<ActionKind> kinds;
  bool several_stages = false;  // on some rank
  bool overlapped = false;      // whether any is
  size_t longest_name = 0;
};

std::string NameIn(const Action& action, bool several_stages) {
  return several_stages ? ToString(action)
                        : absl::StrCat(NameOf(action.kind), action.micro_batch);
}

Measures Measure(const Timeline& timeline) {
  Measures all;
  for (const std::vector<Span>& spans : timeline.ranks) {
    std::set<int> stages;
    size_t count = 0;
    for (const Span& span : spans) {
      if (!IsCompute(span.action.kind)) continue;
      ++count;
      stages.insert(span.action.stage);
      all.kinds.insert(span.action.kind);
      all.overlapped = all.overlapped || span.action.overlapped;
      all.start = std::min(all.start, span.start_seconds);
      all.end = std::max(all.end, span.end_seconds);
      const double seconds = span.end_seconds - span.start_seconds;
      if (seconds > 0) all.shortest = std::min(all.shortest, seconds);
    }
    all.most_spans = std::max(all.most_spans, count);
    all.several_stages = all.several_stages || stages.size() > 1;
  }
  for (const std::vector<Span>& spans : timeline.ranks) {
    for (const Span& span : spans) {
      if (IsCompute(span.action.kind))
        all.longest_name = std::max(
            all.longest_name, NameIn(span.action, all.several_stages).size());
    }
  }
  return all;
}

char CharacterOf(const Action& action) {
  if (action.kind == ActionKind::kWeightGrad) return kFill;
  const char of_first = action.kind == ActionKind::kForward    ? '0'
                        : action.kind == ActionKind::kBackward ? 'a'
                                                               : 'A';
  return static_cast<char>(of_first + action.micro_batch % 10);
}

class Drawing {
 public:
  Drawing(const Measures& measures, int columns) : measures_(measures) {
    const double seconds = measures.end - measures.start;
    // The shortest span has a whole number of columns, for regularity.
    const double fit = std::floor(columns * measures.shortest / seconds);
    const double named = static_cast<double>(measures.longest_name + 1);
    names_ = fit >= named;
    columns_per_second_ =
        fit >= 1 ? (names_ ? named : 1) / measures.shortest : columns / seconds;
  }

  std::string Line(const std::vector<Span>& spans) const {
    std::string line(Column(measures_.end), kIdle);
    const Span* last = nullptr;
    for (const Span& span : spans) {
      if (!IsCompute(span.action.kind)) continue;
      const bool together =
          last != nullptr && last->start_seconds == span.start_seconds;
      Draw(span, together ? last->end_seconds : span.start_seconds, &line);
      last = &span;
    }
    return line;
  }

  std::string Legend() const {
    std::string legend;
    const auto add = [&](ActionKind kind, absl::string_view named,
                         absl::string_view by_character) {
      if (measures_.kinds.count(kind) == 0) return;
      absl::StrAppend(&legend, names_ ? named : by_character);
    };
    add(ActionKind::kForward, "F forward, ", "0-9 forward, ");
    add(ActionKind::kBackward, "B backward, ", "a-j backward, ");
    add(ActionKind::kInputGrad, "I input gradient, ", "A-J input gradient, ");
    add(ActionKind::kWeightGrad, "W weight gradient, ", "= weight gradient, ");
    absl::StrAppend(&legend, "of micro-batch ",
                    !names_                    ? "0-9, 10-19, ..."
                    : measures_.several_stages ? "3 in stage 1: 1F3"
                                               : "3: F3",
                    names_ && measures_.overlapped
                        ? "; + may overlap with the preceding action"
                        : "",
                    "; . idle; a column is ",
                    absl::StrFormat("%.3g s", 1 / columns_per_second_));
    return legend;
  }

 private:
  size_t Column(double seconds) const {
    return static_cast<size_t>(
        std::llround((seconds - measures_.start) * columns_per_second_));
  }

  // Draws from `start_seconds`; concurrent starts appear side by side.
  void Draw(const Span& span, double start_seconds, std::string* line) const {
    const size_t begin = Column(start_seconds);
    const size_t end = Column(span.end_seconds);
    if (begin >= end) return;
    if (!names_) {
      std::fill(line->begin() + begin, line->begin() + end,
                CharacterOf(span.action));
      return;
    }
    std::string bar = NameIn(span.action, measures_.several_stages);
    bar.resize(end - begin - 1, kFill);
    line->replace(begin, end - begin, bar + ' ');
    if (span.action.overlapped && begin > 0) (*line)[begin - 1] = kOverlapped;
  }

  const Measures& measures_;
  bool names_;
  double columns_per_second_;
};

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

std::string DrawTimeline(const Timeline& timeline, int width) {
  const size_t ranks = timeline.ranks.size();
  const int prefix =
      static_cast<int>(absl::StrCat("rank ", ranks - 1, " ").size());
  const int columns = width - prefix - 2;
  const Measures measures = Measure(timeline);
  if (ranks == 0 || ranks > kMostRanks || columns < 1 ||
      measures.most_spans > static_cast<size_t>(columns) ||
      !(measures.end > measures.start))
    return "";
  const Drawing drawing(measures, columns);
  std::string text;
  for (size_t rank = 0; rank < ranks; ++rank) {
    absl::StrAppendFormat(&text, "%-*s|%s|\n", prefix,
                          absl::StrCat("rank ", rank),
                          drawing.Line(timeline.ranks[rank]));
  }
  absl::StrAppend(&text, drawing.Legend(), "\n");
  return text;
}

}  // namespace rankwise
