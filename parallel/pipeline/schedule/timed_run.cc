#include <algorithm>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "parallel/pipeline/schedule/costs.h"
#include "parallel/pipeline/schedule/schedule.h"

namespace rankwise {
namespace {

using VisitSpan = std::function<void(int rank, const Action& action,
                                     double start_seconds, double end_seconds)>;

bool IsCost(double value) { return std::isfinite(value) && value >= 0; }

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

// Visits the actions in an order in which all needed times are known.
class TimedRun {
 public:
  TimedRun(const Schedule& schedule, const SimulationCosts& costs,
           const VisitSpan& visit)
      : schedule_(schedule),
        costs_(costs),
        visit_(visit),
        values_(schedule),
        arrival_seconds_(values_.count(), 0),
        clock_seconds_(schedule.actions.size(), 0),
        last_action_seconds_(schedule.actions.size(), 0) {}

  void Visit(int rank, size_t position) {
    const Action& action = schedule_.actions[rank][position];
    const double takes = SecondsOf(action.kind, CostsOf(action.stage));
    double& clock = clock_seconds_[rank];
    double start = clock;
    if (action.overlapped)
      start -= costs_.overlap * std::min(takes, last_action_seconds_[rank]);
    const size_t needed = values_.NeededBy(action);
    if (needed != Values::kNone)
      start = std::max(start, arrival_seconds_[needed]);
    const double end = start + takes;
    visit_(rank, action, start, end);
    last_action_seconds_[rank] = takes;
    clock = std::max(clock, end);
    const size_t made = values_.MadeBy(action);
    if (made != Values::kNone) arrival_seconds_[made] = Deliver(made, end);
  }

 private:
  const StageCosts& CostsOf(int stage) const {
    return costs_.stages[costs_.stages.size() == 1 ? 0 : stage];
  }

  // Returns the arrival time of `value`, made at `seconds`, where it is used.
  double Deliver(size_t value, double seconds) {
    if (!values_.CrossesRanks(value)) return seconds;
    const int from = values_.RankOfMaker(value);
    const int to = values_.RankOfUser(value);
    // Both directions have the size of the earlier stage's output.
    const StageCosts& sized =
        CostsOf(std::min(values_.MakerOf(value), values_.UserOf(value)));
    const double takes = costs_.link.alpha_seconds +
                         sized.output_bytes * costs_.link.beta_seconds_per_byte;
    if (takes == 0) return seconds;
    double& link_free = link_free_seconds_[{from, to}];
    const double start = std::max(seconds, link_free);
    link_free = start + takes;
    visit_(from, values_.SendOf(value), start, link_free);
    return link_free;
  }

  const Schedule& schedule_;
  const SimulationCosts& costs_;
  const VisitSpan& visit_;
  const Values values_;
  std::vector<double> arrival_seconds_;      // [value]
  std::vector<double> clock_seconds_;        // [rank]
  std::vector<double> last_action_seconds_;  // [rank]
  std::map<std::pair<int, int>, double> link_free_seconds_;
};

}  // namespace

absl::Status CheckCosts(const SimulationCosts& costs, int num_stages) {
  if (costs.stages.size() != 1 &&
      costs.stages.size() != static_cast<size_t>(num_stages))
    return absl::InvalidArgumentError(absl::StrCat(
        "costs of ", costs.stages.size(), " stages for ", num_stages,
        " stages; give one for all, or one per stage"));
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
  if (!(costs.overlap >= 0 && costs.overlap <= 1))
    return absl::InvalidArgumentError(absl::StrCat(
        "an overlap of ", costs.overlap, "; it must be from 0 to 1"));
  return absl::OkStatus();
}

void TimedDryRun(const Schedule& schedule, const SimulationCosts& costs,
                 const VisitSpan& visit) {
  TimedRun run(schedule, costs, visit);
  DryRun(schedule,
         [&](int rank, size_t position) { run.Visit(rank, position); });
}

}  // namespace rankwise
