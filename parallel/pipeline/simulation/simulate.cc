#include "parallel/pipeline/simulation/simulate.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "parallel/pipeline/schedule/schedule.h"
#include "third_party/absl/status_macros.h"

namespace rankwise {
namespace {

// Messages may start later than the computation that follows them.
void SortByStart(Timeline& timeline) {
  const auto starts_before = [](const Span& a, const Span& b) {
    return a.start_seconds < b.start_seconds;
  };
  for (std::vector<Span>& spans : timeline.ranks) {
    if (!std::is_sorted(spans.begin(), spans.end(), starts_before))
      std::stable_sort(spans.begin(), spans.end(), starts_before);
  }
}

// A value to be sent to another rank.
struct Message {
  double seconds;  // send time
  size_t value;
  size_t behind;  // number of its rank's computations that precede it
};

// Returns all messages by send time, if every F, I and W took equally long and
// B twice as long. Any order in which each message follows those that had to
// arrive before its computation leads to lists that cannot deadlock; this one
// is close to the real order.
std::vector<Message> MessagesInOrder(const Values& values,
                                     const Timeline& timeline) {
  std::vector<Message> messages;
  for (const std::vector<Span>& spans : timeline.ranks) {
    for (size_t i = 0; i < spans.size(); ++i) {
      const size_t value = values.MadeBy(spans[i].action);
      if (value != Values::kNone && values.CrossesRanks(value))
        messages.push_back({spans[i].end_seconds, value, i + 1});
    }
  }
  std::stable_sort(
      messages.begin(), messages.end(),
      [](const Message& a, const Message& b) { return a.seconds < b.seconds; });
  return messages;
}

double IdleShare(double busy_seconds, double seconds) {
  return seconds > 0 ? (seconds - busy_seconds) / seconds : 0;
}

double Mean(const std::vector<double>& values) {
  if (values.empty()) return 0;
  return std::accumulate(values.begin(), values.end(), 0.0) /
         static_cast<double>(values.size());
}

// Returns the mean over ranks of k / (steps + k), k = 0 .. p-1 ranks before the
// last: the idle share of 1F1B and similar schedules between a rank's first and
// last action. Rank r starts r forwards after the first and ends r backwards
// before the end, so its idle time is that of a pipeline of p - r ranks.
double MeanOverShorterPipelines(int p, double steps) {
  double sum = 0;
  for (int k = 0; k < p; ++k) sum += k / (steps + k);
  return sum / p;
}

ScheduleFormulas Naive(int p, int m) {
  // Rank r spans the p*m turns except the first r half-turns in each direction.
  double sum = 0;
  for (int rank = 0; rank < p; ++rank) {
    const double turns = static_cast<double>(p) * m - rank;
    sum += (turns - m) / turns;
  }
  return {.span_bubble = sum / p,
          .wall_bubble = (p - 1.0) / p,
          .wall_text = "(p-1)/p",
          .peak_activations = 1};
}

// Huang et al. 2019, section 2.3; Narayanan et al. 2021, section 2.2.1.
ScheduleFormulas Flushed(int p, int m, int peak) {
  return {.span_bubble = MeanOverShorterPipelines(p, m),
          .wall_bubble = (p - 1.0) / (m + p - 1.0),
          .wall_text = "(p-1)/(m+p-1)",
          .peak_activations = peak};
}

// Narayanan et al. 2021, section 2.2.2.
ScheduleFormulas Interleaved(int p, int m, int v) {
  if (m % p != 0) return {};
  const double steps = static_cast<double>(v) * m;
  return {.span_bubble = MeanOverShorterPipelines(p, steps),
          .wall_bubble = (p - 1.0) / (steps + p - 1.0),
          .wall_text = "(p-1)/(v*m+p-1)",
          .peak_activations =
              std::min(2.0 * (p - 1) + (v - 1.0) * p + 1, steps) / v};
}

// Qi et al. 2024, table 1: (p-1)(F+I-W), if W fits into 1F1B's idle time, W <=
// F and W <= I. With a longer W there remains the idle time of any schedule
// with this placement: (p-1)F until the last rank starts, (p-1)I until the
// first gradient reaches the first rank.
ScheduleFormulas HandcraftedH1(int p, int m, const StageCosts& costs) {
  ScheduleFormulas formulas;
  formulas.peak_activations = std::min(p, m);
  if (m < p) return formulas;
  const double f = costs.forward_seconds, i = costs.input_grad_seconds,
               w = costs.weight_grad_seconds;
  const double idle = (p - 1) * std::max({f + i - w, f, i});
  const double seconds = m * (f + i + w) + idle;
  formulas.wall_bubble = seconds > 0 ? idle / seconds : 0;
  formulas.wall_text = w <= std::min(f, i)
                           ? "(p-1)(F+I-W) / (m(F+I+W) + (p-1)(F+I-W))"
                           : "(p-1)max(F,I) / (m(F+I+W) + (p-1)max(F,I))";
  return formulas;
}

// Within its span a rank waits for gradients only, (F+I-2W) per later rank: Qi
// et al. 2024, table 1; if W >= F fills that, for I - F. The wall clock adds
// the (p-1)F until the last rank starts, which the paper avoids: its optimizer
// steps have no barrier (section 4).
ScheduleFormulas HandcraftedH2(int p, int m, const StageCosts& costs) {
  ScheduleFormulas formulas;
  formulas.peak_activations = std::min(2 * p - 1, m);
  if (m < 2 * p - 1) return formulas;
  const double f = costs.forward_seconds, i = costs.input_grad_seconds,
               w = costs.weight_grad_seconds;
  const double wait = std::max({f + i - 2 * w, i - f, 0.0});
  const double idle = (p - 1) * std::max(f, wait);
  const double busy = m * (f + i + w);
  formulas.wall_bubble = busy > 0 ? idle / (busy + idle) : 0;
  formulas.wall_text = "X / (m(F+I+W)+X), X = (p-1)max(F,F+I-2W,I-F)";
  formulas.span_bubble =
      wait > 0 ? MeanOverShorterPipelines(p, busy / wait) : 0;
  return formulas;
}

// If F = I = W, a pair takes 3F in order and 2F overlapped. In order, rank r
// idles (p-1-r)F before its last action; overlapped it never idles, but has rF
// less to overlap. For other costs table 2 of DeepSeek-AI's V3 report, with 2p
// = PP stages, where F&B is the duration of a pair.
ScheduleFormulas OverlappedV(int p, int m, const StageCosts& costs,
                             double overlap) {
  const double f = costs.forward_seconds, w = costs.weight_grad_seconds,
               b = costs.backward_seconds;
  ScheduleFormulas formulas;
  formulas.peak_activations = p + 0.5;
  formulas.paper_idle_seconds =
      (p - 1) * (f + b - overlap * std::min(f, b) + b - 3 * w);
  formulas.paper_idle_text = "(p-1)(F&B+B-3W), DeepSeek-V3, table 2";
  if (costs.input_grad_seconds != f || w != f) return formulas;
  if (overlap == 0) {
    formulas.span_bubble = MeanOverShorterPipelines(p, 6.0 * m);
    formulas.wall_bubble = (p - 1.0) / (6.0 * m + p - 1.0);
    formulas.wall_text = "(p-1)/(6m+p-1)";
  } else if (overlap == 1) {
    formulas.span_bubble = 0;
    formulas.wall_bubble = (p - 1.0) / 2 / (4.0 * m + 3.0 * p);
    formulas.wall_text = "(p-1)/2/(4m+3p)";
  }
  return formulas;
}

// Qi et al. 2024, section 6: no bubble within a rank's span if F = I = W and
// there are enough micro-batches to fill the warm-up.
ScheduleFormulas HandcraftedV(int p, int m, const StageCosts& costs) {
  ScheduleFormulas formulas;
  formulas.peak_activations = std::min(p, m);
  const bool equal = costs.forward_seconds == costs.input_grad_seconds &&
                     costs.forward_seconds == costs.weight_grad_seconds;
  if (!equal || m < 2 * p - 1) return formulas;
  formulas.span_bubble = 0;
  formulas.wall_bubble = (p - 1.0) / (6.0 * m + p - 1.0);
  formulas.wall_text = "(p-1)/(6m+p-1)";
  return formulas;
}

}  // namespace

absl::StatusOr<Timeline> Simulate(const Schedule& schedule,
                                  const SimulationCosts& costs) {
  ASSIGN_OR_RETURN(const ScheduleFacts valid, Validate(schedule));
  RETURN_IF_ERROR(CheckCosts(costs, schedule.num_stages()));
  if (HasCommunication(schedule))
    return Simulate(ComputationOf(schedule), costs);
  Timeline timeline;
  for (const std::vector<Action>& actions : schedule.actions)
    timeline.ranks.emplace_back().reserve(actions.size());
  TimedDryRun(schedule, costs,
              [&](int rank, const Action& action, double start, double end) {
                timeline.ranks[rank].push_back({action, start, end});
              });
  SortByStart(timeline);
  return timeline;
}

absl::StatusOr<Schedule> AddCommunication(const Schedule& compute) {
  Schedule schedule = ComputationOf(compute);
  ASSIGN_OR_RETURN(const Timeline timeline,
                   Simulate(schedule, {.stages = {StageCosts{}}, .link = {}}));
  const Values values(schedule);
  // By rank: communication, with the number of computations before it.
  std::vector<std::vector<std::pair<size_t, Action>>> insertions(
      schedule.actions.size());
  // [rank, peer]: number of the rank's computations before their last common
  // message. A receive directly follows its rank's last operation with the same
  // peer; any earlier, and the two ranks would issue in different orders.
  std::map<std::pair<int, int>, size_t> last_met;
  for (const Message& message : MessagesInOrder(values, timeline)) {
    const int from = values.RankOfMaker(message.value);
    const int to = values.RankOfUser(message.value);
    last_met[{from, to}] = message.behind;
    insertions[from].emplace_back(message.behind, values.SendOf(message.value));
    insertions[to].emplace_back(last_met[{to, from}],
                                values.ReceiveOf(message.value));
  }
  for (size_t rank = 0; rank < schedule.actions.size(); ++rank) {
    auto& inserted = insertions[rank];
    std::stable_sort(
        inserted.begin(), inserted.end(),
        [](const auto& a, const auto& b) { return a.first < b.first; });
    std::vector<Action>& actions = schedule.actions[rank];
    const std::vector<Action> computations = std::exchange(actions, {});
    actions.reserve(computations.size() + inserted.size());
    auto next = inserted.begin();
    for (size_t done = 0; done <= computations.size(); ++done) {
      for (; next != inserted.end() && next->first == done; ++next)
        actions.push_back(next->second);
      if (done < computations.size()) actions.push_back(computations[done]);
    }
  }
  return schedule;
}

Extent ExtentOf(const std::vector<Span>& spans) {
  Extent extent;
  for (const Span& span : spans) {
    if (!IsCompute(span.action.kind)) continue;
    extent.overlapped_seconds +=
        std::max(0.0, std::min(span.end_seconds, extent.end_seconds) -
                          span.start_seconds);
    extent.start_seconds = std::min(extent.start_seconds, span.start_seconds);
    extent.end_seconds = std::max(extent.end_seconds, span.end_seconds);
    (span.action.kind == ActionKind::kForward ? extent.forward_seconds
                                              : extent.backward_seconds) +=
        span.end_seconds - span.start_seconds;
  }
  return extent;
}

Bubbles MeasureBubbles(const Timeline& timeline) {
  Bubbles bubbles;
  std::vector<Extent> extents;
  Extent all;
  for (const std::vector<Span>& spans : timeline.ranks) {
    extents.push_back(ExtentOf(spans));
    all.start_seconds =
        std::min(all.start_seconds, extents.back().start_seconds);
    all.end_seconds = std::max(all.end_seconds, extents.back().end_seconds);
  }
  bubbles.wall_seconds = all.seconds();
  for (const Extent& extent : extents) {
    bubbles.busy_seconds.push_back(extent.busy_seconds());
    bubbles.span_per_rank.push_back(
        IdleShare(extent.busy_seconds(), extent.seconds()));
    bubbles.wall_per_rank.push_back(
        IdleShare(extent.busy_seconds(), all.seconds()));
  }
  bubbles.span = Mean(bubbles.span_per_rank);
  bubbles.wall = Mean(bubbles.wall_per_rank);
  return bubbles;
}

ScheduleFormulas FormulasOf(const std::string& name, const ScheduleShape& shape,
                            const StageCosts& costs, double overlap) {
  const int p = shape.num_ranks;
  const int m = shape.num_micro_batches;
  if (name == "naive") return Naive(p, m);
  if (name == "gpipe") return Flushed(p, m, m);
  if (name == "1f1b") return Flushed(p, m, std::min(p, m));
  if (name == "interleaved_1f1b") return Interleaved(p, m, shape.chunks);
  if (name == "zero_bubble_h1") return HandcraftedH1(p, m, costs);
  if (name == "zero_bubble_h2") return HandcraftedH2(p, m, costs);
  if (name == "zbv") return HandcraftedV(p, m, costs);
  if (name == "dualpipev") return OverlappedV(p, m, costs, overlap);
  return {};
}

}  // namespace rankwise
