// What --mode names.
#ifndef RANKWISE_COMM_BENCH_MODES_MODES_H_
#define RANKWISE_COMM_BENCH_MODES_MODES_H_

#include "absl/status/status.h"
#include "comm_bench/sweep/bench_config.h"
#include "comm_bench/sweep/bench_rank.h"

namespace rankwise::comm_bench {

// Collective. InvalidArgument where the mode cannot run with these ranks;
// Cancelled after Ctrl-C; DataLoss where a result was wrong. Throws what a
// failed call throws.
absl::Status RunMode(const BenchConfig& config, const BenchRank& rank);

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_MODES_MODES_H_
