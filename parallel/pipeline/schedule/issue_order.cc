#include "parallel/pipeline/schedule/issue_order.h"

#include <algorithm>
#include <utility>

#include "parallel/pipeline/schedule/dry_run.h"

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

void ReadList(const Schedule& schedule, int rank, const Values& values,
              const std::vector<Action>& actions_of_peer,
              SendReleases* releases) {
  const auto is_on_rank = [&](int stage) {
    return schedule.rank_of_stage[stage] == rank;
  };
  std::vector<size_t> consumed;  // since the peer's last send to this rank
  for (const Action& action : actions_of_peer) {
    if (IsSend(action.kind)) {
      const size_t sent = values.CarriedBy(action);
      if (consumed.empty() || !is_on_rank(values.UserOf(sent))) continue;
      (*releases)[sent] = std::exchange(consumed, {});
    } else if (IsCompute(action.kind)) {
      const size_t needed = values.NeededBy(action);
      if (needed == Values::kNone || !is_on_rank(values.MakerOf(needed)))
        continue;
      consumed.push_back(needed);
    }
  }
}

}  // namespace

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
  SendReleases releases;
  for (int peer = 0; peer < schedule.num_ranks(); ++peer) {
    if (peer == rank) continue;
    ReadList(schedule, rank, values, schedule.actions[peer], &releases);
  }
  return releases;
}

}  // namespace rankwise
