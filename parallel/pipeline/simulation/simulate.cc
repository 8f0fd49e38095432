#include "parallel/pipeline/simulation/simulate.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <numeric>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "parallel/pipeline/schedule/actions.h"
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
  double sent_seconds;
  size_t behind;  // the number of its rank's computations that come before it
};

// All messages in the order in which they would be sent if every F, I and W
// took as long, and B twice as long. Any order of this kind, in which each
// message comes after those that had to be there before it was made, leads to
// lists that cannot deadlock; this one is near the order in real time.
std::vector<Message> MessagesInOrder(const Schedule& schedule,
                                     const Timeline& timeline) {
  const Values values(schedule);
  std::vector<Message> messages;
  for (int rank = 0; rank < schedule.num_ranks(); ++rank) {
    for (size_t i = 0; i < timeline.ranks[rank].size(); ++i) {
      const Span& span = timeline.ranks[rank][i];
      const size_t value = values.MadeBy(span.action);
      if (value != Values::kNone && values.CrossesRanks(value))
        messages.push_back({value, span.end_seconds, i + 1});
    }
  }
  std::stable_sort(messages.begin(), messages.end(),
                   [](const Message& a, const Message& b) {
                     return a.sent_seconds < b.sent_seconds;
                   });
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
  // By rank: what goes behind how many of its computations.
  std::vector<std::multimap<size_t, Action>> insertions(
      schedule.actions.size());
  // [rank, peer]: behind how many computations of the rank they last met. A
  // receive goes right behind what its rank last issued with the same peer: no
  // earlier, or the two ranks would issue in different orders.
  std::map<std::pair<int, int>, size_t> last_met;
  for (const Message& message : MessagesInOrder(schedule, timeline)) {
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

}  // namespace rankwise
