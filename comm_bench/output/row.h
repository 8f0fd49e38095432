// One line of the benchmark's output.
#ifndef RANKWISE_COMM_BENCH_OUTPUT_ROW_H_
#define RANKWISE_COMM_BENCH_OUTPUT_ROW_H_

#include <cstdint>

#include "comm_bench/timing/series.h"
#include "records/record.h"

namespace rankwise::comm_bench {

// The same on every rank but for `record`; of groups that run at the same time,
// each rank describes its own, and the times are those of all. Of a group that
// runs alone, on its ranks only.
struct Row {
  CollectiveRecord record;  // what was called, and this rank's samples
  Summary time;             // seconds of one call
  double algbw = 0;         // GB/s, decimal; 0 without elements
  double busbw = 0;
  // The median over that of the first group alone; value 0: not measured.
  Estimate contention;
  // Of what a copy between two GPUs reaches, busbw's share; 0 unknown.
  double peer_share = 0;
  int64_t wrong = -1;  // wrong elements on all ranks; -1: not checked
  Series::End end = Series::End::kCounted;

  const CallDescription& call() const { return record; }
};

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_OUTPUT_ROW_H_
