#include "parallel/pipeline/schedule/actions.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"

namespace rankwise {
namespace {

bool MakesInputGrad(ActionKind kind) {
  return kind == ActionKind::kBackward || kind == ActionKind::kInputGrad;
}

// `schedule` with only the actions that `keep` accepts.
template <typename Keep>
Schedule Filtered(const Schedule& schedule, Keep keep) {
  Schedule kept = {
      schedule.name, schedule.num_micro_batches, schedule.rank_of_stage, {}};
  for (const std::vector<Action>& actions : schedule.actions) {
    kept.actions.emplace_back();
    std::copy_if(actions.begin(), actions.end(),
                 std::back_inserter(kept.actions.back()), keep);
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
  if (action.kind == ActionKind::kForward)
    return stage == 0 ? kNone : Forward(stage - 1, action.micro_batch);
  if (!MakesInputGrad(action.kind) || stage + 1 == stages_) return kNone;
  return Backward(stage + 1, action.micro_batch);
}

size_t Values::MadeBy(const Action& action) const {
  const size_t stage = static_cast<size_t>(action.stage);
  if (action.kind == ActionKind::kForward)
    return stage + 1 == stages_ ? kNone : Forward(stage, action.micro_batch);
  if (!MakesInputGrad(action.kind) || stage == 0) return kNone;
  return Backward(stage, action.micro_batch);
}

size_t Values::CarriedBy(const Action& action) const {
  const bool forward = action.kind == ActionKind::kSendForward ||
                       action.kind == ActionKind::kRecvForward;
  const Action computation = {
      action.stage, action.micro_batch,
      forward ? ActionKind::kForward : ActionKind::kBackward};
  if (IsSend(action.kind)) return MadeBy(computation);
  return IsReceive(action.kind) ? NeededBy(computation) : kNone;
}

int Values::MakerOf(size_t value) const {
  return static_cast<int>(value / micro_batches_ % stages_);
}

int Values::UserOf(size_t value) const {
  return IsGradient(value) ? MakerOf(value) - 1 : MakerOf(value) + 1;
}

bool Values::CrossesRanks(size_t value) const {
  return rank_of_stage_[MakerOf(value)] != rank_of_stage_[UserOf(value)];
}

Action Values::SendOf(size_t value) const {
  return {
      MakerOf(value), static_cast<int32_t>(value % micro_batches_),
      IsGradient(value) ? ActionKind::kSendBackward : ActionKind::kSendForward};
}

Action Values::ReceiveOf(size_t value) const {
  return {
      UserOf(value), static_cast<int32_t>(value % micro_batches_),
      IsGradient(value) ? ActionKind::kRecvBackward : ActionKind::kRecvForward};
}

}  // namespace rankwise
