// From a configuration to ranks that measure.
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

// This process as one rank of the job, or as all ranks of a backend that
// pretends them, as threads: connects the ranks, makes sure that all were given
// the same flags, and measures. From then on the first SIGINT or SIGTERM asks
// for an orderly end, which is forced 5 s later; a second one ends the process
// at once. Prints errors; returns the exit code.
int RunRanks(const Question& question, const BenchConfig& config,
             const CommConfig& comm);

// Prints an error of rank `rank`; returns its exit code, 0 where it is OK.
// `who` opens the line.
int Report(const std::string& who, const absl::Status& status, int rank = 0);

// The parts of RunRanks, for both kinds of ranks.

// Set by SIGINT and SIGTERM after CatchInterrupts().
extern std::atomic<bool> interrupted;
void CatchInterrupts();

RunningRank DescribeRank(const Question& question, const RankEnv& env,
                         c10::Device device);
Job JobOf(const RankEnv& env, const RunRecord& run, c10::Device device);

// What ranks of one process share.
struct Assignment {
  const Question& question;
  const BenchConfig& config;
  const Plan& plan;
  const RunRecord& run;
  const EnvironmentRecord& environment;
};

// Shows where this rank runs, and measures. The assignment's records may be
// another rank's of the same process.
absl::Status Measure(const Assignment& assignment, BenchRank& rank);

// All ranks of a backend that pretends them.
absl::Status RunPretendedRanks(const Question& question,
                               const BenchConfig& config,
                               const CommConfig& comm);

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_RUN_RANK_H_
