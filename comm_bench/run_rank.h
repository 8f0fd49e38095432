// Runs this process's ranks with a given configuration.
#ifndef RANKWISE_COMM_BENCH_RUN_RANK_H_
#define RANKWISE_COMM_BENCH_RUN_RANK_H_

#include <atomic>
#include <string>

#include "absl/status/status.h"
#include "comm_bench/question.h"
#include "comm_bench/sweep/config.h"
#include "parallel/comm/communicator.h"
#include "parallel/launch/run_record.h"

namespace rankwise::comm_bench {

// Runs this process as one rank of the job, or, for a backend that simulates
// its peers, all ranks as threads: connects the ranks, checks that all were
// given the same flags, and measures. Afterwards the first SIGINT or SIGTERM
// requests an orderly end, which is forced 5 s later; a second one ends the
// process immediately. Prints errors; returns the exit code.
int RunRanks(const Question& question, const BenchConfig& config,
             const CommConfig& comm);

// Prints an error of rank `rank`, prefixed by `who`. Returns its exit code; 0
// if it is OK.
int Report(const std::string& who, const absl::Status& status, int rank = 0);

// Parts of RunRanks, for both kinds of ranks.

// set by SIGINT and SIGTERM after CatchInterrupts()
extern std::atomic<bool> interrupted;
void CatchInterrupts();

RunningRank DescribeRank(const Question& question, const RankEnv& env,
                         c10::Device device);
Job JobOf(const RankEnv& env, const RunRecord& run, c10::Device device);

// State shared by the ranks of one process.
struct Assignment {
  const Question& question;
  const BenchConfig& config;
  const Plan& plan;
  const RunRecord& run;
  const EnvironmentRecord& environment;
};

// Prints where this rank runs, and measures. The assignment's records may be
// those of another rank of the same process.
absl::Status Measure(const Assignment& assignment, BenchRank& rank);

// Runs all ranks of a backend that simulates its peers.
absl::Status RunSimulatedRanks(const Question& question,
                               const BenchConfig& config,
                               const CommConfig& comm);

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_RUN_RANK_H_
