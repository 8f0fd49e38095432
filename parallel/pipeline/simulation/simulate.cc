#include "parallel/pipeline/simulation/simulate.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <numeric>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "parallel/pipeline/schedule/schedule.h"
#include "third_party/absl/status_macros.h"

namespace rankwise {
namespace {

bool IsCost(double value) { return std::isfinite(value) && value >= 0; }

absl::Status CheckCosts(const Schedule& schedule,
                        const SimulationCosts& costs) {
  if (costs.stages.size() != 1 &&
      costs.stages.size() != schedule.rank_of_stage.size())
    return absl::InvalidArgumentError(absl::StrCat(
        "costs of ", costs.stages.size(), " stages for ", schedule.num_stages(),
        " stages; give one for all, or ", "one per stage"));
  for (size_t i = 0; i < costs.stages.size(); ++i) {
    const StageCosts& stage = costs.stages[i];
    for (const double cost : {stage.forward_seconds, stage.input_grad_seconds,
                              stage.weight_grad_seconds, stage.backward_seconds,
                              stage.output_bytes}) {
      if (!IsCost(cost))
        return absl::InvalidArgumentError(
            absl::StrCat("a cost of stage ", i, " is ", cost,
                         "; costs must be finite and not negative"));
    }
  }
  if (!IsCost(costs.link.alpha_seconds) ||
      !IsCost(costs.link.beta_seconds_per_byte))
    return absl::InvalidArgumentError(
        absl::StrCat("link costs of ", costs.link.alpha_seconds, " and ",
                     costs.link.beta_seconds_per_byte,
                     "; they must be finite and not negative"));
  return absl::OkStatus();
}

double SecondsOf(ActionKind kind, const StageCosts& costs) {
  switch (kind) {
    case ActionKind::kForward:
      return costs.forward_seconds;
    case ActionKind::kInputGrad:
      return costs.input_grad_seconds;
    case ActionKind::kWeightGrad:
      return costs.weight_grad_seconds;
    default:
      return costs.backward_seconds;
  }
}

// Visits the actions in an order in which all that one needs is known.
class Simulation {
 public:
  Simulation(const Schedule& schedule, const SimulationCosts& costs)
      : schedule_(schedule),
        costs_(costs),
        values_(schedule),
        arrival_seconds_(values_.count(), 0),
        clock_seconds_(schedule.actions.size(), 0) {
    timeline_.ranks.resize(schedule.actions.size());
    for (size_t rank = 0; rank < schedule.actions.size(); ++rank) {
      timeline_.ranks[rank].reserve(schedule.actions[rank].size());
    }
  }

  void Visit(int rank, size_t position) {
    const Action& action = schedule_.actions[rank][position];
    double start = clock_seconds_[rank];
    const size_t needed = values_.NeededBy(action);
    if (needed != Values::kNone)
      start = std::max(start, arrival_seconds_[needed]);
    const double end = start + SecondsOf(action.kind, CostsOf(action.stage));
    timeline_.ranks[rank].push_back({action, start, end});
    clock_seconds_[rank] = end;
    const size_t made = values_.MadeBy(action);
    if (made != Values::kNone) arrival_seconds_[made] = Deliver(made, end);
  }

  Timeline Take() {
    // Messages may start later than the computation that follows them.
    for (std::vector<Span>& spans : timeline_.ranks) {
      const auto starts_before = [](const Span& a, const Span& b) {
        return a.start_seconds < b.start_seconds;
      };
      if (!std::is_sorted(spans.begin(), spans.end(), starts_before))
        std::stable_sort(spans.begin(), spans.end(), starts_before);
    }
    return std::move(timeline_);
  }

 private:
  const StageCosts& CostsOf(int stage) const {
    return costs_.stages[costs_.stages.size() == 1 ? 0 : stage];
  }

  // When `value`, made at `seconds`, is where it is used.
  double Deliver(size_t value, double seconds) {
    if (!values_.CrossesRanks(value)) return seconds;
    const int from = values_.RankOfMaker(value);
    const int to = values_.RankOfUser(value);
    // Both directions carry the output of the earlier of the two stages.
    const StageCosts& sized =
        CostsOf(std::min(values_.MakerOf(value), values_.UserOf(value)));
    const double takes = costs_.link.alpha_seconds +
                         sized.output_bytes * costs_.link.beta_seconds_per_byte;
    if (takes == 0) return seconds;
    double& link_free = link_free_seconds_[{from, to}];
    const double start = std::max(seconds, link_free);
    link_free = start + takes;
    timeline_.ranks[from].push_back({values_.SendOf(value), start, link_free});
    return link_free;
  }

  const Schedule& schedule_;
  const SimulationCosts& costs_;
  const Values values_;
  std::vector<double> arrival_seconds_;  // [value]
  std::vector<double> clock_seconds_;    // [rank]
  std::map<std::pair<int, int>, double> link_free_seconds_;
  Timeline timeline_;
};

// A value on its way to another rank.
struct Message {
  size_t value;
  size_t behind;  // the number of its rank's computations that come before it
};

// All messages by the time at which they would be sent if every F, I and W took
// equally long, and B twice as long. Any order of this kind, in which each
// message comes after those that had to be there before it was made, leads to
// lists that cannot deadlock; this one is near the order in real time.
std::multimap<double, Message> MessagesInOrder(const Values& values,
                                               const Timeline& timeline) {
  std::multimap<double, Message> messages;
  for (const std::vector<Span>& spans : timeline.ranks) {
    for (size_t i = 0; i < spans.size(); ++i) {
      const size_t value = values.MadeBy(spans[i].action);
      if (value != Values::kNone && values.CrossesRanks(value))
        messages.insert({spans[i].end_seconds, {value, i + 1}});
    }
  }
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

// Mean over ranks of k / (steps + k), k = 0 .. p-1 ranks away from the last:
// what 1F1B and its kin idle between their first and last action. Rank r starts
// r forwards after the first and ends r backwards before the end, so that its
// idle time is that of a pipeline of p - r ranks.
double MeanOverShorterPipelines(int p, double steps) {
  double sum = 0;
  for (int k = 0; k < p; ++k) sum += k / (steps + k);
  return sum / p;
}

ScheduleFormulas Naive(int p, int m) {
  // Rank r's part of the p*m turns is all but the first r half-turns each way.
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

// Qi et al. 2023, table 1: (p-1)(F+I-W), where W fits into the time that 1F1B
// waits, W <= F and W <= I. A longer W leaves what no schedule of this
// placement avoids: (p-1)F until the last rank starts, (p-1)I until the first
// gradient is at the first rank.
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

// Qi et al. 2024, section 6: no bubble within a rank's span where F = I = W,
// once there are micro-batches enough to fill the warm-up.
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
  RETURN_IF_ERROR(CheckCosts(schedule, costs));
  if (HasCommunication(schedule))
    return Simulate(ComputationOf(schedule), costs);
  Simulation simulation(schedule, costs);
  DryRun(schedule,
         [&](int rank, size_t position) { simulation.Visit(rank, position); });
  return simulation.Take();
}

absl::StatusOr<Schedule> AddCommunication(const Schedule& compute) {
  Schedule schedule = ComputationOf(compute);
  ASSIGN_OR_RETURN(const Timeline timeline,
                   Simulate(schedule, {.stages = {StageCosts{}}, .link = {}}));
  const Values values(schedule);
  // By rank: the communication, keyed by the number of computations before it.
  std::vector<std::multimap<size_t, Action>> insertions(
      schedule.actions.size());
  // [rank, peer]: behind how many computations of the rank they last met. A
  // receive goes right behind what its rank last issued with the same peer: no
  // earlier, or the two ranks would issue in different orders.
  std::map<std::pair<int, int>, size_t> last_met;
  for (const auto& [seconds, message] : MessagesInOrder(values, timeline)) {
    const int from = values.RankOfMaker(message.value);
    const int to = values.RankOfUser(message.value);
    last_met[{from, to}] = message.behind;
    insertions[from].emplace(message.behind, values.SendOf(message.value));
    insertions[to].emplace(last_met[{to, from}],
                           values.ReceiveOf(message.value));
  }
  for (size_t rank = 0; rank < schedule.actions.size(); ++rank) {
    const std::vector<Action> computations =
        std::exchange(schedule.actions[rank], {});
    for (size_t done = 0; done <= computations.size(); ++done) {
      const auto [begin, end] = insertions[rank].equal_range(done);
      for (auto next = begin; next != end; ++next)
        schedule.actions[rank].push_back(next->second);
      if (done < computations.size())
        schedule.actions[rank].push_back(computations[done]);
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
                            const StageCosts& costs) {
  const int p = shape.num_ranks;
  const int m = shape.num_micro_batches;
  if (name == "naive") return Naive(p, m);
  if (name == "gpipe") return Flushed(p, m, m);
  if (name == "1f1b") return Flushed(p, m, std::min(p, m));
  if (name == "interleaved_1f1b") return Interleaved(p, m, shape.chunks);
  if (name == "zero_bubble_h1") return HandcraftedH1(p, m, costs);
  if (name == "zbv") return HandcraftedV(p, m, costs);
  return {};
}

}  // namespace rankwise
