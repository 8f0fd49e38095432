// The timing engine on a clock of the caller's choice, for tests.
#ifndef RANKWISE_COMM_BENCH_TIMING_TIMING_ON_CLOCK_H_
#define RANKWISE_COMM_BENCH_TIMING_TIMING_ON_CLOCK_H_

#include <atomic>

#include "comm_bench/timing/timing.h"
#include "parallel/comm/control.h"
#include "parallel/comm/rank_clock.h"

namespace rankwise::comm_bench {

// TimeIterations, whose clock is HostClock(). `clock.now` may differ from the
// steady clock by its origin and by drift.
Series TimeIterationsOnClock(const RankClock& clock, Control& control,
                             const Iteration& iteration,
                             const TimingConfig& config,
                             const std::atomic<bool>* stop = nullptr);

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_TIMING_TIMING_ON_CLOCK_H_
