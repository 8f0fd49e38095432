#include <algorithm>

#include "parallel/pipeline/generators.h"

namespace rankwise {
namespace {

// The k-th forward of each rank: a round takes p micro-batches through the
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
