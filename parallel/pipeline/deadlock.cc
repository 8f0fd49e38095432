#include "parallel/pipeline/deadlock.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "parallel/pipeline/action_table.h"
#include "parallel/pipeline/dry_run.h"

namespace rankwise {
namespace {

// The rank that `rank`, stuck before its action `position`, waits for.
int WaitsForRank(const Schedule& schedule, int rank, size_t position) {
  const Values values(schedule);
  const size_t value = values.NeededBy(schedule.actions[rank][position]);
  return schedule.rank_of_stage[values.MakerOf(value)];
}

// The ranks of the circle, each waiting for the next, the last for the first.
// `done` as DryRun returns it. Every stuck rank waits for a stuck one, so that
// following them from any of them ends in a circle.
std::vector<int> CircleFrom(const Schedule& schedule, int rank,
                            const std::vector<size_t>& done) {
  std::vector<int> path;
  while (std::find(path.begin(), path.end(), rank) == path.end()) {
    path.push_back(rank);
    rank = WaitsForRank(schedule, rank, done[rank]);
  }
  path.erase(path.begin(), std::find(path.begin(), path.end(), rank));
  return path;
}

// "rank 0, action 2 (0B0), waits for 1B0, which rank 1 has as action 5".
std::string DescribeWait(const Schedule& schedule, int rank, size_t position) {
  const Values values(schedule);
  const Action& stuck = schedule.actions[rank][position];
  const size_t value = values.NeededBy(stuck);
  const int other = WaitsForRank(schedule, rank, position);
  const std::vector<Action>& others = schedule.actions[other];
  // Where there is communication, what has to happen is the send.
  const bool sent = HasCommunication(schedule);
  const auto awaited =
      std::find_if(others.begin(), others.end(), [&](const Action& action) {
        return sent ? IsSend(action.kind) && values.CarriedBy(action) == value
                    : values.MadeBy(action) == value;
      });
  return absl::StrCat(PlaceOf(rank, position, stuck), " waits for ",
                      ToString(*awaited), ", which is action ",
                      awaited - others.begin() + 1, " of rank ", other);
}

}  // namespace

absl::Status CheckNoDeadlock(const Schedule& schedule) {
  const std::vector<size_t> done = DryRun(schedule, [](int, size_t) {});
  for (int rank = 0; rank < schedule.num_ranks(); ++rank) {
    if (done[rank] == schedule.actions[rank].size()) continue;
    std::string message = "deadlock, ranks wait for each other in a circle:";
    for (const int waiting : CircleFrom(schedule, rank, done)) {
      absl::StrAppend(&message, "\n  ",
                      DescribeWait(schedule, waiting, done[waiting]));
    }
    return absl::InvalidArgumentError(message);
  }
  return absl::OkStatus();
}

}  // namespace rankwise
