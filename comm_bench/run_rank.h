// From a configuration to a rank that measures.
#ifndef RANKWISE_COMM_BENCH_RUN_RANK_H_
#define RANKWISE_COMM_BENCH_RUN_RANK_H_

#include "absl/status/status.h"
#include "comm_bench/sweep/config.h"
#include "parallel/comm/communicator.h"
#include "parallel/launch/rank_env.h"

namespace rankwise::comm_bench {

// Connects this process to the other ranks, makes sure that all were asked for
// the same, and runs the mode. Cancelled after Ctrl-C, which is caught from
// then on.
absl::Status RunRank(const BenchConfig& config, const CommConfig& comm_config,
                     const RankEnv& env);

// The same with --backend=fake: `world_size` ranks as threads of this process.
absl::Status RunFakeRanks(const BenchConfig& config,
                          const FakeBackendConfig& fake, int world_size);

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_RUN_RANK_H_
