// Recognizes runs of the communication benchmark.
#ifndef RANKWISE_ANALYSIS_RUNS_COMM_BENCH_H_
#define RANKWISE_ANALYSIS_RUNS_COMM_BENCH_H_

#include "records/record.h"

namespace rankwise {

// Whether the run was recorded by a comm_bench binary, which has no training
// steps.
bool IsCommBench(const RunRecord& run);

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_RUNS_COMM_BENCH_H_
