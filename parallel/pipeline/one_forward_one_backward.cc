#include "parallel/pipeline/generators.h"

namespace rankwise {

Schedule OneForwardOneBackward(int p, int m) {
  Schedule schedule = EmptySchedule(p, m, 1);
  for (int rank = 0; rank < p; ++rank) {
    std::vector<Action>& actions = schedule.actions[rank];
    actions.reserve(2 * static_cast<size_t>(m));
    // Backwards run this many micro-batches behind the forwards.
    const int warmup = p - 1 - rank;
    for (int i = 0; i < m + warmup; ++i) {
      if (i < m) actions.push_back({rank, i, ActionKind::kForward});
      if (i >= warmup)
        actions.push_back({rank, i - warmup, ActionKind::kBackward});
    }
  }
  return schedule;
}

}  // namespace rankwise
