// What --mode names.
#ifndef RANKWISE_COMM_BENCH_MODES_MODES_H_
#define RANKWISE_COMM_BENCH_MODES_MODES_H_

#include "absl/status/status.h"
#include "comm_bench/sweep/config.h"
#include "comm_bench/sweep/plan.h"

namespace rankwise::comm_bench {

// Collective. `plan` is MakePlan's for these ranks. Cancelled after Ctrl-C;
// DataLoss where a result was wrong. Throws what a failed call throws.
absl::Status RunMode(const BenchConfig& config, const Plan& plan,
                     const BenchRank& rank);

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_MODES_MODES_H_
