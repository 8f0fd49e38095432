#include "parallel/pipeline/generators.h"

namespace rankwise {

Schedule EmptySchedule(int p, int m, int v) {
  Schedule schedule;
  schedule.num_micro_batches = m;
  schedule.actions.resize(static_cast<size_t>(p));
  for (int stage = 0; stage < p * v; ++stage) {
    schedule.rank_of_stage.push_back(stage % p);
  }
  return schedule;
}

Schedule NaiveSchedule(int p, int m) {
  Schedule schedule = EmptySchedule(p, m, 1);
  for (int rank = 0; rank < p; ++rank) {
    for (int i = 0; i < m; ++i) {
      schedule.actions[rank].push_back({rank, i, ActionKind::kForward});
      schedule.actions[rank].push_back({rank, i, ActionKind::kBackward});
    }
  }
  return schedule;
}

}  // namespace rankwise
