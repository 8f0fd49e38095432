#include "parallel/pipeline/schedule/actions.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"

namespace rankwise {
namespace {

// `schedule` with only the actions that `keep` accepts.
template <typename Keep>
Schedule Filtered(const Schedule& schedule, Keep keep) {
  Schedule kept;
  kept.name = schedule.name;
  kept.num_micro_batches = schedule.num_micro_batches;
  kept.rank_of_stage = schedule.rank_of_stage;
  kept.actions.resize(schedule.actions.size());
  for (size_t rank = 0; rank < schedule.actions.size(); ++rank) {
    std::copy_if(schedule.actions[rank].begin(), schedule.actions[rank].end(),
                 std::back_inserter(kept.actions[rank]), keep);
  }
  return kept;
}

}  // namespace

absl::string_view NameOf(ActionKind kind) {
  constexpr absl::string_view kNames[kNumActionKinds] = {
      "F", "B", "I", "W", "SEND_F", "RECV_F", "SEND_B", "RECV_B"};
  return kNames[static_cast<size_t>(kind)];
}

std::string ToString(const Action& action) {
  return absl::StrCat(action.stage, NameOf(action.kind), action.micro_batch);
}

std::vector<int> Schedule::StagesOf(int rank) const {
  std::vector<int> stages;
  for (int stage = 0; stage < num_stages(); ++stage) {
    if (rank_of_stage[stage] == rank) stages.push_back(stage);
  }
  return stages;
}

bool HasCommunication(const Schedule& schedule) {
  for (const std::vector<Action>& actions : schedule.actions) {
    for (const Action& action : actions) {
      if (!IsCompute(action.kind)) return true;
    }
  }
  return false;
}

Schedule ComputationOf(const Schedule& schedule) {
  return Filtered(schedule,
                  [](const Action& action) { return IsCompute(action.kind); });
}

Schedule FirstMicroBatches(const Schedule& schedule, int num_micro_batches) {
  Schedule first = Filtered(schedule, [&](const Action& action) {
    return action.micro_batch < num_micro_batches;
  });
  first.num_micro_batches =
      std::min(num_micro_batches, schedule.num_micro_batches);
  return first;
}

size_t Values::NeededBy(const Action& action) const {
  const size_t stage = static_cast<size_t>(action.stage);
  switch (action.kind) {
    case ActionKind::kForward:
      return stage == 0 ? kNone : Forward(stage - 1, action.micro_batch);
    case ActionKind::kBackward:
    case ActionKind::kInputGrad:
      return stage + 1 == stages_ ? kNone
                                  : Backward(stage + 1, action.micro_batch);
    default:
      return kNone;
  }
}

size_t Values::MadeBy(const Action& action) const {
  const size_t stage = static_cast<size_t>(action.stage);
  switch (action.kind) {
    case ActionKind::kForward:
      return stage + 1 == stages_ ? kNone : Forward(stage, action.micro_batch);
    case ActionKind::kBackward:
    case ActionKind::kInputGrad:
      return stage == 0 ? kNone : Backward(stage, action.micro_batch);
    default:
      return kNone;
  }
}

size_t Values::CarriedBy(const Action& action) const {
  Action computation = action;
  switch (action.kind) {
    case ActionKind::kSendForward:
      computation.kind = ActionKind::kForward;
      return MadeBy(computation);
    case ActionKind::kRecvForward:
      computation.kind = ActionKind::kForward;
      return NeededBy(computation);
    case ActionKind::kSendBackward:
      computation.kind = ActionKind::kBackward;
      return MadeBy(computation);
    case ActionKind::kRecvBackward:
      computation.kind = ActionKind::kBackward;
      return NeededBy(computation);
    default:
      return kNone;
  }
}

int Values::MakerOf(size_t value) const {
  return static_cast<int>(value / micro_batches_ % stages_);
}

int Values::UserOf(size_t value) const {
  return IsGradient(value) ? MakerOf(value) - 1 : MakerOf(value) + 1;
}

Action Values::SendOf(size_t value) const {
  Action send;
  send.stage = MakerOf(value);
  send.micro_batch = static_cast<int32_t>(value % micro_batches_);
  send.kind =
      IsGradient(value) ? ActionKind::kSendBackward : ActionKind::kSendForward;
  return send;
}

Action Values::ReceiveOf(size_t value) const {
  Action receive;
  receive.stage = UserOf(value);
  receive.micro_batch = static_cast<int32_t>(value % micro_batches_);
  receive.kind =
      IsGradient(value) ? ActionKind::kRecvBackward : ActionKind::kRecvForward;
  return receive;
}

}  // namespace rankwise
