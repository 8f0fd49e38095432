// The order in which the actions of a schedule can run: what the validator and
// the simulator share.
#ifndef RANKWISE_PARALLEL_PIPELINE_SCHEDULE_DRY_RUN_H_
#define RANKWISE_PARALLEL_PIPELINE_SCHEDULE_DRY_RUN_H_

#include <cstddef>
#include <vector>

#include "parallel/pipeline/schedule/actions.h"

namespace rankwise {

// Calls visit(rank, i) for every actions[rank][i], each after those before it
// on its rank and after the making of what it needs from another stage; where
// the schedule has communication, after the sending of it. Returns, per rank,
// how many actions could be visited: all, unless ranks wait for each other in a
// cycle. Takes time linear in the number of actions. The schedule's stages,
// micro-batches and ranks must be in range.
template <typename Visit>
std::vector<size_t> DryRun(const Schedule& schedule, Visit visit) {
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
    if (!has_communication || value == Values::kNone) return value;
    const bool stays = schedule.rank_of_stage[values.MakerOf(value)] ==
                       schedule.rank_of_stage[values.UserOf(value)];
    return stays ? value : Values::kNone;
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

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_PIPELINE_SCHEDULE_DRY_RUN_H_
