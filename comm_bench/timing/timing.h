// The timing engine: runs an iteration on all ranks together until its time is
// known well enough.
#ifndef RANKWISE_COMM_BENCH_TIMING_TIMING_H_
#define RANKWISE_COMM_BENCH_TIMING_TIMING_H_

#include <atomic>

#include "comm_bench/timing/series.h"
#include "comm_bench/timing/timing_config.h"
#include "parallel/comm/control.h"

namespace rankwise::comm_bench {

// Collective over all ranks of `control`: their configurations agree, and all
// return the same. Ranks exchange their samples in growing batches of at most
// about 0.2 s, outside the times measured, and decide from the same data.
// `stop`, set by any rank, ends the series at the end of a batch (kInterrupted)
// with what was measured. Exceptions of `iteration` pass through.
Series TimeIterations(Control& control, const Iteration& iteration,
                      const TimingConfig& config,
                      const std::atomic<bool>* stop = nullptr);

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_TIMING_TIMING_H_
