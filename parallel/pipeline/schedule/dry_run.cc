#include "parallel/pipeline/schedule/dry_run.h"

#include <algorithm>
#include <utility>

namespace rankwise {
namespace {

int CostOf(ActionKind kind) {
  if (!IsCompute(kind)) return 0;
  return kind == ActionKind::kBackward ? 2 : 1;
}

// Messages before computations that start at the same time, as they may need
// them. On one rank a computation that starts at that time comes after all of
// them in its list, because computations take time.
struct Start {
  int time = 0;
  bool computes = false;
  int rank = 0;

  bool operator<(const Start& other) const {
    return time != other.time ? time < other.time : computes < other.computes;
  }
};

}  // namespace

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
    const int user = schedule.rank_of_stage[values.UserOf(value)];
    if (waits_for[user] != value) return;
    waits_for[user] = Values::kNone;
    runnable.push_back(user);
  };
  // What other stages can use once `action` is done.
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
  std::vector<int> there(values.count(), 0);  // when values are
  std::vector<int> clock(schedule.actions.size(), 0);
  std::vector<std::vector<Start>> of_rank(schedule.actions.size());
  DryRun(schedule, [&](int rank, size_t position) {
    const Action& action = schedule.actions[rank][position];
    const size_t needed = values.NeededBy(action);
    if (needed != Values::kNone)
      clock[rank] = std::max(clock[rank], there[needed]);
    of_rank[rank].push_back({clock[rank], IsCompute(action.kind), rank});
    clock[rank] += CostOf(action.kind);
    // A send need not follow straight behind what made its value.
    if (IsSend(action.kind)) there[values.CarriedBy(action)] = clock[rank];
    const size_t made = values.MadeBy(action);
    if (made != Values::kNone) there[made] = clock[rank];
  });
  std::vector<Start> starts;
  for (const std::vector<Start>& list : of_rank)
    starts.insert(starts.end(), list.begin(), list.end());
  std::stable_sort(starts.begin(), starts.end());
  std::vector<int> ranks;
  for (const Start& start : starts) ranks.push_back(start.rank);
  return ranks;
}

SendReleases FindSendReleases(const Schedule& schedule, int rank) {
  const Values values(schedule);
  const auto is_on_rank = [&](int stage) {
    return schedule.rank_of_stage[stage] == rank;
  };
  SendReleases releases;
  for (int peer = 0; peer < schedule.num_ranks(); ++peer) {
    if (peer == rank) continue;
    std::vector<size_t> consumed;  // since the peer's last send to this rank
    for (const Action& action : schedule.actions[peer]) {
      const size_t sent = values.CarriedBy(action);
      const size_t needed = values.NeededBy(action);
      if (needed != Values::kNone && is_on_rank(values.MakerOf(needed))) {
        consumed.push_back(needed);
      } else if (IsSend(action.kind) && !consumed.empty() &&
                 is_on_rank(values.UserOf(sent))) {
        releases[sent] = std::exchange(consumed, {});
      }
    }
  }
  return releases;
}

}  // namespace rankwise
