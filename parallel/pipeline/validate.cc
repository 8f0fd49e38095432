#include "parallel/pipeline/validate.h"

#include <algorithm>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "parallel/pipeline/action_table.h"
#include "parallel/pipeline/actions.h"
#include "parallel/pipeline/deadlock.h"
#include "parallel/pipeline/messages.h"

namespace rankwise {
namespace {

using Kind = ActionKind;

absl::Status Missing(const Schedule& schedule, const Action& action,
                     absl::string_view detail) {
  return absl::InvalidArgumentError(
      absl::StrCat("rank ", schedule.rank_of_stage[action.stage],
                   ": missing action ", ToString(action), detail));
}

// One F, and one B or both of I and W.
absl::Status CheckComplete(const Schedule& schedule, const ActionTable& table,
                           int stage, int micro_batch) {
  const auto has = [&](Kind kind) {
    return table.PositionOf(kind, stage, micro_batch) != ActionTable::kMissing;
  };
  const auto action = [&](Kind kind) {
    return Action{stage, micro_batch, kind};
  };
  if (!has(Kind::kForward))
    return Missing(schedule, action(Kind::kForward), "");
  const bool whole = has(Kind::kBackward);
  if (whole && (has(Kind::kInputGrad) || has(Kind::kWeightGrad))) {
    const Kind half =
        has(Kind::kInputGrad) ? Kind::kInputGrad : Kind::kWeightGrad;
    const int rank = schedule.rank_of_stage[stage];
    return absl::InvalidArgumentError(absl::StrCat(
        PlaceOf(rank, table.PositionOf(half, stage, micro_batch), action(half)),
        ": doubled: ", ToString(action(Kind::kBackward)),
        " computes it already"));
  }
  if (whole) return absl::OkStatus();
  if (!has(Kind::kInputGrad) && !has(Kind::kWeightGrad))
    return Missing(schedule, action(Kind::kBackward), "");
  if (!has(Kind::kInputGrad))
    return Missing(schedule, action(Kind::kInputGrad), " (W needs it)");
  if (!has(Kind::kWeightGrad))
    return Missing(schedule, action(Kind::kWeightGrad),
                   " (the other half of I)");
  return absl::OkStatus();
}

// What an action needs that its own rank does.
class OrderChecker {
 public:
  OrderChecker(const Schedule& schedule, const ActionTable& table)
      : schedule_(schedule),
        table_(table),
        values_(schedule),
        has_communication_(HasCommunication(schedule)) {}

  absl::Status Check(int rank, size_t position) const {
    const Action& action = schedule_.actions[rank][position];
    for (const Action& needed : NeedsOf(action)) {
      const int32_t at = table_.PositionOf(needed);
      if (at == ActionTable::kMissing || at < static_cast<int32_t>(position))
        continue;
      return absl::InvalidArgumentError(
          absl::StrCat(PlaceOf(rank, position, action), ": use before ",
                       ToString(needed), ", which is action ", at + 1));
    }
    return absl::OkStatus();
  }

 private:
  // Of those that are missing, other checks complain where it is wrong.
  std::vector<Action> NeedsOf(const Action& action) const {
    const auto of_same = [&](Kind kind) {
      return Action{action.stage, action.micro_batch, kind};
    };
    std::vector<Action> needs;
    switch (action.kind) {
      case Kind::kBackward:
      case Kind::kInputGrad:
        needs.push_back(of_same(Kind::kForward));
        break;
      case Kind::kWeightGrad:
        needs.push_back(of_same(Kind::kInputGrad));
        break;
      case Kind::kSendForward:
        needs.push_back(of_same(Kind::kForward));
        break;
      case Kind::kSendBackward:
        needs.push_back(of_same(Kind::kBackward));
        needs.push_back(of_same(Kind::kInputGrad));
        break;
      default:
        break;
    }
    AddArrival(values_.NeededBy(action), &needs);
    return needs;
  }

  // How a value comes from another stage: made on this rank, or received.
  void AddArrival(size_t value, std::vector<Action>* needs) const {
    if (value == Values::kNone) return;
    const int maker = values_.MakerOf(value);
    if (schedule_.rank_of_stage[maker] !=
        schedule_.rank_of_stage[values_.UserOf(value)]) {
      if (has_communication_) needs->push_back(values_.ReceiveOf(value));
      return;
    }
    Action made = values_.SendOf(value);
    if (made.kind == Kind::kSendForward) {
      made.kind = Kind::kForward;
      needs->push_back(made);
      return;
    }
    for (const Kind kind : {Kind::kBackward, Kind::kInputGrad}) {
      made.kind = kind;
      needs->push_back(made);
    }
  }

  const Schedule& schedule_;
  const ActionTable& table_;
  const Values values_;
  const bool has_communication_;
};

absl::Status CheckActions(const Schedule& schedule, const ActionTable& table) {
  for (int stage = 0; stage < schedule.num_stages(); ++stage) {
    for (int i = 0; i < schedule.num_micro_batches; ++i) {
      const absl::Status complete = CheckComplete(schedule, table, stage, i);
      if (!complete.ok()) return complete;
    }
  }
  const OrderChecker order(schedule, table);
  for (int rank = 0; rank < schedule.num_ranks(); ++rank) {
    for (size_t i = 0; i < schedule.actions[rank].size(); ++i) {
      const absl::Status checked = order.Check(rank, i);
      if (!checked.ok()) return checked;
    }
  }
  return absl::OkStatus();
}

int PeakActivations(const std::vector<Action>& actions) {
  int kept = 0, peak = 0;
  for (const Action& action : actions) {
    if (action.kind == Kind::kForward) peak = std::max(peak, ++kept);
    if (action.kind == Kind::kBackward || action.kind == Kind::kWeightGrad)
      --kept;
  }
  return peak;
}

}  // namespace

absl::StatusOr<ScheduleFacts> Validate(const Schedule& schedule) {
  const absl::StatusOr<ActionTable> table = ActionTable::Create(schedule);
  if (!table.ok()) return table.status();
  if (absl::Status status = CheckActions(schedule, *table); !status.ok())
    return status;
  if (HasCommunication(schedule)) {
    if (absl::Status status = CheckMessages(schedule, *table); !status.ok())
      return status;
  }
  if (absl::Status status = CheckNoDeadlock(schedule); !status.ok())
    return status;
  ScheduleFacts facts;
  for (const std::vector<Action>& actions : schedule.actions) {
    facts.peak_activations.push_back(PeakActivations(actions));
  }
  return facts;
}

}  // namespace rankwise
