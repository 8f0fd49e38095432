// One line of the benchmark's output.
#ifndef RANKWISE_COMM_BENCH_OUTPUT_ROW_H_
#define RANKWISE_COMM_BENCH_OUTPUT_ROW_H_

#include <cstdint>

#include "comm_bench/timing/series.h"
#include "records/record.h"

namespace rankwise::comm_bench {

// Equal on every rank except for `record`. If groups run at the same time, each
// rank describes its own, and the times are over all of them. If a group runs
// alone, only its ranks have the row.
struct Row {
  CollectiveRecord record;  // the call, and this rank's samples
  Summary time;             // seconds of one call
  double algbw = 0;         // GB/s, decimal; 0 without elements
  double busbw = 0;
  // median over that of the first group alone; value 0 if not measured
  Estimate contention;
  // busbw as a share of the rate of a copy between two GPUs; 0 if unknown
  double peer_share = 0;
  int64_t wrong = -1;  // wrong elements on all ranks; -1 if unchecked
  Series::End end = Series::End::kCounted;

  const CallDescription& call() const { return record; }
};

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_OUTPUT_ROW_H_
