// The clock that a rank takes its stamps from.
#ifndef RANKWISE_PARALLEL_CLOCK_RANK_CLOCK_H_
#define RANKWISE_PARALLEL_CLOCK_RANK_CLOCK_H_

#include <functional>

namespace rankwise {

struct RankClock {
  // Now, in seconds since a time of its own; never goes back.
  std::function<double()> now;
  // Ranks whose clocks have the same id read the same clock; 0: this one is
  // nobody else's.
  double id = 0;
};

// std::chrono::steady_clock: one clock for all processes that share a boot of a
// kernel and a time namespace, which is what its id is made of. On a thread in
// virtual time (virtual_time.h), that, for use on this thread: one clock for
// all ranks.
RankClock HostClock();

// Sleeps while more than 0.3 ms are left, then yields the core over and
// over: ranks may share it. Virtual time advances instead.
void WaitUntil(const RankClock& clock, double time);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_CLOCK_RANK_CLOCK_H_
