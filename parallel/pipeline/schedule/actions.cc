#include <algorithm>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "parallel/pipeline/schedule/schedule.h"

namespace rankwise {
namespace {

bool MakesInputGrad(ActionKind kind) {
  return kind == ActionKind::kBackward || kind == ActionKind::kInputGrad;
}

int CostOf(ActionKind kind) {
  if (!IsCompute(kind)) return 0;
  return kind == ActionKind::kBackward ? 2 : 1;
}

// Returns `schedule` with only the actions that `keep` accepts. An action whose
// partner is dropped is no longer overlapped.
template <typename Keep>
Schedule Filtered(const Schedule& schedule, Keep keep) {
  Schedule kept = {
      schedule.name, schedule.num_micro_batches, schedule.rank_of_stage, {}};
  for (const std::vector<Action>& actions : schedule.actions) {
    std::vector<Action>& list = kept.actions.emplace_back();
    bool last_is_kept = false;  // whether the last computation was kept
    for (const Action& action : actions) {
      const bool is_kept = keep(action);
      if (is_kept) {
        list.push_back(action);
        list.back().overlapped = action.overlapped && last_is_kept;
      }
      if (IsCompute(action.kind)) last_is_kept = is_kept;
    }
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

size_t Values::Number(Kind kind, int maker, int micro_batch) const {
  const int user = kind == kOutput ? maker + 1 : maker - 1;
  const auto [first, last] = std::minmax(maker, user);
  if (first < 0 || last >= stages_) return kNone;
  const int row = kind == kOutput ? maker : stages_ + maker;
  return static_cast<size_t>(row) * static_cast<size_t>(micro_batches_) +
         static_cast<size_t>(micro_batch);
}

size_t Values::NeededBy(const Action& action) const {
  if (action.kind == ActionKind::kForward)
    return Number(kOutput, action.stage - 1, action.micro_batch);
  if (!MakesInputGrad(action.kind)) return kNone;
  return Number(kGradient, action.stage + 1, action.micro_batch);
}

size_t Values::MadeBy(const Action& action) const {
  if (action.kind == ActionKind::kForward)
    return Number(kOutput, action.stage, action.micro_batch);
  if (!MakesInputGrad(action.kind)) return kNone;
  return Number(kGradient, action.stage, action.micro_batch);
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
  return static_cast<int>(value / static_cast<size_t>(micro_batches_)) %
         stages_;
}

int Values::MicroBatchOf(size_t value) const {
  return static_cast<int>(value % static_cast<size_t>(micro_batches_));
}

int Values::UserOf(size_t value) const {
  return IsGradient(value) ? MakerOf(value) - 1 : MakerOf(value) + 1;
}

Action Values::SendOf(size_t value) const {
  return {
      MakerOf(value), MicroBatchOf(value),
      IsGradient(value) ? ActionKind::kSendBackward : ActionKind::kSendForward};
}

Action Values::ReceiveOf(size_t value) const {
  return {
      UserOf(value), MicroBatchOf(value),
      IsGradient(value) ? ActionKind::kRecvBackward : ActionKind::kRecvForward};
}

std::vector<size_t> DryRun(
    const Schedule& schedule,
    const std::function<void(int rank, size_t position)>& visit) {
  const Values values(schedule);
  const bool has_communication = HasCommunication(schedule);
  std::vector<char> there(values.count(), 0);
  std::vector<size_t> waits_for(schedule.actions.size(), Values::kNone);
  std::vector<size_t> done(schedule.actions.size(), 0);
  std::vector<int> runnable;
  for (int rank = schedule.num_ranks() - 1; rank >= 0; --rank) {
    runnable.push_back(rank);
  }

  const auto deliver = [&](size_t value) {
    there[value] = 1;
    const int user = values.RankOfUser(value);
    if (waits_for[user] != value) return;
    waits_for[user] = Values::kNone;
    runnable.push_back(user);
  };
  // Returns the value that other stages can use after `action`.
  const auto delivered_by = [&](const Action& action) {
    if (IsSend(action.kind)) return values.CarriedBy(action);
    const size_t value = values.MadeBy(action);
    const bool is_sent = has_communication && value != Values::kNone &&
                         values.CrossesRanks(value);
    return is_sent ? Values::kNone : value;
  };

  while (!runnable.empty()) {
    const int rank = runnable.back();
    runnable.pop_back();
    const std::vector<Action>& actions = schedule.actions[rank];
    for (size_t& i = done[rank]; i < actions.size(); ++i) {
      const size_t needed = values.NeededBy(actions[i]);
      if (needed != Values::kNone && !there[needed]) {
        waits_for[rank] = needed;
        break;
      }
      visit(rank, i);
      const size_t made = delivered_by(actions[i]);
      if (made != Values::kNone) deliver(made);
    }
  }
  return done;
}

std::vector<int> IssueOrder(const Schedule& schedule) {
  const Values values(schedule);
  // By value, the time at which it becomes available.
  std::vector<int> there(values.count(), 0);
  std::vector<int> clock(schedule.actions.size(), 0);
  // Messages precede computations that start at the same time, since those may
  // need them. On one rank, a computation that starts at that time follows all
  // of them in its list, because computations take time.
  std::vector<std::tuple<int, bool, int>> starts;  // time, computes, rank
  DryRun(schedule, [&](int rank, size_t position) {
    const Action& action = schedule.actions[rank][position];
    int& time = clock[rank];
    const size_t needed = values.NeededBy(action);
    if (needed != Values::kNone) time = std::max(time, there[needed]);
    starts.emplace_back(time, IsCompute(action.kind), rank);
    time += CostOf(action.kind);
    // A send need not directly follow its value's computation.
    if (IsSend(action.kind)) there[values.CarriedBy(action)] = time;
    const size_t made = values.MadeBy(action);
    if (made != Values::kNone) there[made] = time;
  });
  std::sort(starts.begin(), starts.end());
  std::vector<int> ranks;
  for (const auto& start : starts) ranks.push_back(std::get<2>(start));
  return ranks;
}

SendReleases::SendReleases(const Schedule& schedule) {
  const Values values(schedule);
  first_.assign(values.count(), Values::kNone);
  next_.assign(values.count(), Values::kNone);
  for (const std::vector<Action>& actions : schedule.actions) {
    // By rank of the maker: the last value from that rank used here since the
    // last send to it; next_ links the earlier ones.
    std::unordered_map<int, size_t> used;
    for (const Action& action : actions) {
      const size_t needed = values.NeededBy(action);
      if (needed != Values::kNone && values.CrossesRanks(needed)) {
        size_t& last =
            used.try_emplace(values.RankOfMaker(needed), Values::kNone)
                .first->second;
        next_[needed] = last;
        last = needed;
      } else if (IsSend(action.kind)) {
        const size_t sent = values.CarriedBy(action);
        const auto found = used.find(values.RankOfUser(sent));
        if (found == used.end()) continue;
        first_[sent] = std::exchange(found->second, Values::kNone);
      }
    }
  }
}

}  // namespace rankwise
