#include "parallel/pipeline/generators.h"

namespace rankwise {

Schedule GPipeSchedule(int p, int m) {
  Schedule schedule = EmptySchedule(p, m, 1);
  for (int rank = 0; rank < p; ++rank) {
    for (int i = 0; i < m; ++i) {
      schedule.actions[rank].push_back({rank, i, ActionKind::kForward});
    }
    for (int i = 0; i < m; ++i) {
      schedule.actions[rank].push_back({rank, i, ActionKind::kBackward});
    }
  }
  return schedule;
}

}  // namespace rankwise
