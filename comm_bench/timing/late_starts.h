// Which iterations do not count because a rank started late.
#ifndef RANKWISE_COMM_BENCH_TIMING_LATE_STARTS_H_
#define RANKWISE_COMM_BENCH_TIMING_LATE_STARTS_H_

#include <cstdint>
#include <vector>

#include "comm_bench/timing/series.h"

namespace rankwise::comm_bench {

// kWindow: an iteration is late when a rank started later than planned (and
// than its deliberate arrival) by more than 50 us or a tenth of the median
// duration, whichever is longer, plus the clocks' error. `planned_seconds` and
// the series' starts are on the same clock.
std::vector<int64_t> MissedWindows(const Series& series,
                                   const std::vector<double>& planned_seconds,
                                   const std::vector<double>& arrival_seconds);

// kBarrier: an iteration is late when the ranks' starts, less their deliberate
// arrivals, lie further apart than ten times the median of all iterations, than
// the median duration, and than twice the clocks' error. So a barrier that
// always lets ranks go unevenly is taken as it is, and a rank that lost its
// core between barrier and start is not.
std::vector<int64_t> LeftBarrierLate(
    const Series& series, const std::vector<double>& arrival_seconds);

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_TIMING_LATE_STARTS_H_
