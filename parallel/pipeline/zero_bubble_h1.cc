#include "parallel/pipeline/generators.h"

namespace rankwise {

Schedule ZeroBubbleH1(int p, int m) {
  Schedule schedule = EmptySchedule(p, m, 1);
  for (int rank = 0; rank < p; ++rank) {
    std::vector<Action>& actions = schedule.actions[rank];
    // I runs p - 1 - rank micro-batches behind F, as B in 1F1B, and W another
    // rank behind I: the later the rank, the fewer activations wait for I, the
    // more may wait for W.
    const int warmup = p - 1 - rank;
    for (int i = 0; i < m + p - 1; ++i) {
      if (i < m) actions.push_back({rank, i, ActionKind::kForward});
      if (i >= warmup && i - warmup < m)
        actions.push_back({rank, i - warmup, ActionKind::kInputGrad});
      if (i >= p - 1)
        actions.push_back({rank, i - (p - 1), ActionKind::kWeightGrad});
    }
  }
  return schedule;
}

}  // namespace rankwise
