// Runs a collective and a computation, by themselves or at the same time, and
// learns when each of them ended.
#ifndef RANKWISE_COMM_BENCH_MODES_BESIDE_COMPUTE_H_
#define RANKWISE_COMM_BENCH_MODES_BESIDE_COMPUTE_H_

#include <functional>

#include "comm_bench/collectives/collective.h"

namespace rankwise::comm_bench {

// Seconds since the run began, which is when the collective starts.
struct BesideTimes {
  double compute_begin = 0;  // once the collective's start has returned
  double compute_end = 0;
  // Of the collective by its futures, also while the rank still computes. Of
  // those that have none (Gloo's messages): when the wait for them returned.
  double comm_end = 0;
  bool comm_end_seen = true;  // false: comm_end is when the wait returned
  double end = 0;             // of both
};

// Starts the collective, if there is one, then computes, if there is anything
// to compute, then waits. On CUDA both run on streams, and ends are those that
// the host sees by asking. Throws what a failed call throws.
BesideTimes RunBeside(c10d::ProcessGroup& group, const Collective* collective,
                      const Call& call, Buffers& buffers,
                      const std::function<void()>& compute);

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_MODES_BESIDE_COMPUTE_H_
