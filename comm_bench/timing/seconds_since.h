// Durations on the host's steady clock.
#ifndef RANKWISE_COMM_BENCH_TIMING_SECONDS_SINCE_H_
#define RANKWISE_COMM_BENCH_TIMING_SECONDS_SINCE_H_

#include <chrono>

namespace rankwise::comm_bench {

inline double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
      .count();
}

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_TIMING_SECONDS_SINCE_H_
