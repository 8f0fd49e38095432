// Which recorded runs are of the communication benchmark.
#ifndef RANKWISE_ANALYSIS_RUNS_COMM_BENCH_H_
#define RANKWISE_ANALYSIS_RUNS_COMM_BENCH_H_

#include "records/record.h"

namespace rankwise {

// Whether a binary of comm_bench, which takes no training steps, wrote the run.
bool IsCommBench(const RunRecord& run);

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_RUNS_COMM_BENCH_H_
