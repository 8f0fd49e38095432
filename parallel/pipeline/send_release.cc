#include "parallel/pipeline/send_release.h"

#include <utility>

namespace rankwise {
namespace {

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
