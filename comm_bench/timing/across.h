// How the ranks' times of one iteration become one.
#ifndef RANKWISE_COMM_BENCH_TIMING_ACROSS_H_
#define RANKWISE_COMM_BENCH_TIMING_ACROSS_H_

namespace rankwise::comm_bench {

enum class Across {
  kSlowest,   // the longest time of any rank, from its own start: the default
  kTransfer,  // from the last start to the last end: without the skew
  kMakespan,  // from the first start to the last end
  kMean,      // over ranks
};

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_TIMING_ACROSS_H_
