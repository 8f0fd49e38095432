// Collectives over sizes: the benchmark's main mode.
#ifndef RANKWISE_COMM_BENCH_SWEEP_SWEEP_H_
#define RANKWISE_COMM_BENCH_SWEEP_SWEEP_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "comm_bench/collectives/collective.h"
#include "comm_bench/collectives/traffic_matrix.h"
#include "comm_bench/sweep/bench_config.h"
#include "comm_bench/sweep/bench_rank.h"

namespace rankwise::comm_bench {

// One block of the table: everything but the size.
struct SweepCase {
  const Collective* collective = nullptr;
  c10::ScalarType dtype = c10::ScalarType::Float;
  ReduceOp op = ReduceOp::kSum;
  bool in_place = false;
};

struct SweepPlan {
  std::vector<SweepCase> cases;
  std::vector<std::string> left_out;  // why, a sentence each
};

// All combinations that are asked for and can run in groups of as many ranks as
// `traffic` has, over `backend`. InvalidArgument says why one cannot, unless
// `config.lenient`, and when none can.
absl::StatusOr<SweepPlan> PlanSweep(const BenchConfig& config,
                                    const TrafficMatrix& traffic,
                                    const std::string& backend);

// Why the sweep cannot run with `world_size` ranks over `backend`: by its plan,
// its groups or its traffic matrix.
absl::Status CheckSweep(const BenchConfig& config, int world_size,
                        const std::string& backend);

// A call of the sweep in the group of all ranks.
struct SweepCall {
  const Collective* collective = nullptr;
  Call call;
};

// The sweep's calls without traffic matrices, for modes that measure something
// else of them. InvalidArgument as CheckSweep, and for collectives that cannot
// run beside anything: those that block, and all_to_all_v.
absl::StatusOr<std::vector<SweepCall>> PlanCalls(const BenchConfig& config,
                                                 const BenchRank& rank);

// Collective. Prints and records row by row. Cancelled after Ctrl-C, with what
// was measured kept; DataLoss, at the end, where a result was wrong. Throws
// what a failed call throws.
absl::Status RunSweep(const BenchConfig& config, const BenchRank& rank);

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_SWEEP_SWEEP_H_
