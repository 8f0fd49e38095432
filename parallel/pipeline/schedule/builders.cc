#include "parallel/pipeline/schedule/builders.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace rankwise {
namespace {

// A backward action and its lag behind the forwards in micro-batches.
struct Behind {
  ActionKind kind;
  int lag;
};

// Returns the same order of actions without the turns of a short step in which
// a rank far behind has nothing to do.
std::vector<Behind> WithoutIdleTurns(std::vector<Behind> backwards, int m) {
  int earlier = 0, shortened = 0;
  for (Behind& backward : backwards) {
    shortened += std::min(backward.lag - earlier, m);
    earlier = std::exchange(backward.lag, shortened);
  }
  return backwards;
}

// Builds a schedule of one stage per rank. Each turn is F of the next
// micro-batch, then the backward actions that `backwards_of(rank)` lists, the
// last one with the largest lag.
template <typename BackwardsOf>
Schedule TakingTurns(int p, int m, BackwardsOf backwards_of) {
  Schedule schedule = EmptySchedule(p, m, 1);
  for (int rank = 0; rank < p; ++rank) {
    const std::vector<Behind> backwards =
        WithoutIdleTurns(backwards_of(rank), m);
    const auto add = [&](int micro_batch, ActionKind kind) {
      if (micro_batch < 0 || micro_batch >= m) return;
      schedule.actions[rank].push_back({rank, micro_batch, kind});
    };
    for (int i = 0; i < m + backwards.back().lag; ++i) {
      add(i, ActionKind::kForward);
      for (const auto& [kind, lag] : backwards) add(i - lag, kind);
    }
  }
  return schedule;
}

// The k-th forward of each rank: a round runs p micro-batches through the
// rank's first chunk, then through its second, and so on.
struct Unit {
  int chunk;
  int micro_batch;
};

Unit UnitAt(int k, int p, int v) {
  const int round = k / (p * v);
  return {k % (p * v) / p, round * p + k % p};
}

}  // namespace

Schedule EmptySchedule(int p, int m, int v) {
  Schedule schedule;
  schedule.num_micro_batches = m;
  schedule.actions.resize(static_cast<size_t>(p));
  for (int stage = 0; stage < p * v; ++stage) {
    schedule.rank_of_stage.push_back(stage % p);
  }
  return schedule;
}

Schedule Naive(int p, int m, int) {
  return TakingTurns(p, m, [](int) {
    return std::vector<Behind>{{ActionKind::kBackward, 0}};
  });
}

Schedule GPipe(int p, int m, int) {
  return TakingTurns(p, m, [m](int) {
    return std::vector<Behind>{{ActionKind::kBackward, m}};
  });
}

Schedule OneForwardOneBackward(int p, int m, int) {
  return TakingTurns(p, m, [p](int rank) {
    return std::vector<Behind>{{ActionKind::kBackward, p - 1 - rank}};
  });
}

// I lags behind F as B does in 1F1B, and W another `rank` micro-batches: later
// ranks have fewer activations waiting for I, so more of them may wait for W.
Schedule ZeroBubbleH1(int p, int m, int) {
  return TakingTurns(p, m, [p](int rank) {
    return std::vector<Behind>{{ActionKind::kInputGrad, p - 1 - rank},
                               {ActionKind::kWeightGrad, p - 1}};
  });
}

// As H1 with twice the lags: one more micro-batch per direction.
Schedule ZeroBubbleH2(int p, int m, int) {
  return TakingTurns(p, m, [p](int rank) {
    return std::vector<Behind>{{ActionKind::kInputGrad, 2 * (p - 1 - rank)},
                               {ActionKind::kWeightGrad, 2 * (p - 1)}};
  });
}

Schedule InterleavedOneForwardOneBackward(int p, int m, int v) {
  Schedule schedule = EmptySchedule(p, m, v);
  const int units = (m + p - 1) / p * p * v;
  for (int rank = 0; rank < p; ++rank) {
    const auto add = [&](int chunk, int micro_batch, ActionKind kind) {
      if (micro_batch >= m) return;
      schedule.actions[rank].push_back({chunk * p + rank, micro_batch, kind});
    };
    const int warmup = std::min(2 * (p - 1 - rank) + (v - 1) * p, units);
    for (int k = 0; k < units + warmup; ++k) {
      if (k < units) {
        const Unit unit = UnitAt(k, p, v);
        add(unit.chunk, unit.micro_batch, ActionKind::kForward);
      }
      if (k >= warmup) {
        const Unit unit = UnitAt(k - warmup, p, v);
        add(v - 1 - unit.chunk, unit.micro_batch, ActionKind::kBackward);
      }
    }
  }
  return schedule;
}

}  // namespace rankwise
