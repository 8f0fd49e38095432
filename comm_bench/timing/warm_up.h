// Iterations before counting starts.
#ifndef RANKWISE_COMM_BENCH_TIMING_WARM_UP_H_
#define RANKWISE_COMM_BENCH_TIMING_WARM_UP_H_

#include <vector>

#include "comm_bench/timing/batch.h"
#include "comm_bench/timing/timing_config.h"

namespace rankwise::comm_bench {

// The same on every rank. Zeros without iterations.
struct WarmUp {
  double iteration_seconds = 0;  // median of the last five, slowest rank
  double pace_seconds = 0;       // from one iteration to the next
  bool stop = false;             // on any rank
};

// Collective. As many iterations as `config` says; ranks line up by barriers
// where it says kWindow, as windows are sized by what is learnt here.
WarmUp RunWarmUp(BatchRunner& runner, const TimingConfig& config);

// Whether the median of the last five values differs from that of the five
// before by at most a tenth of the latter. False below ten.
bool IsStable(const std::vector<double>& values);

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_TIMING_WARM_UP_H_
