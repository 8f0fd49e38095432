// From a configuration to ranks that measure.
#ifndef RANKWISE_COMM_BENCH_RUN_RANK_H_
#define RANKWISE_COMM_BENCH_RUN_RANK_H_

#include "absl/status/status.h"
#include "comm_bench/sweep/config.h"
#include "parallel/comm/communicator.h"

namespace rankwise::comm_bench {

// This process as one rank of the job, or as all ranks of a backend that
// pretends them, as threads: connects the ranks, makes sure that all were given
// the same flags, and runs the mode. From then on the first SIGINT or SIGTERM
// asks for an orderly end, which is forced 5 s later; a second one ends the
// process at once. Prints errors; returns the exit code.
int RunRanks(const BenchConfig& config, const CommConfig& comm);

// Prints an error of rank `rank`; returns its exit code, 0 where it is OK.
// `who` opens the line.
int Report(const std::string& who, const absl::Status& status, int rank = 0);

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_RUN_RANK_H_
