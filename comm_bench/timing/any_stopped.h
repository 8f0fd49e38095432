// Whether the ranks should end early.
#ifndef RANKWISE_COMM_BENCH_TIMING_ANY_STOPPED_H_
#define RANKWISE_COMM_BENCH_TIMING_ANY_STOPPED_H_

#include <atomic>

#include "parallel/comm/control.h"

namespace rankwise::comm_bench {

// Collective, and the same on every rank: whether `stop` is set on any of them.
// Null: never set on this rank.
bool AnyStopped(Control& control, const std::atomic<bool>* stop);

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_TIMING_ANY_STOPPED_H_
