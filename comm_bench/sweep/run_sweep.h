// The table of //comm_bench: collectives over sizes.
#ifndef RANKWISE_COMM_BENCH_SWEEP_RUN_SWEEP_H_
#define RANKWISE_COMM_BENCH_SWEEP_RUN_SWEEP_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "comm_bench/sweep/plan.h"

namespace rankwise::comm_bench {

// Collective. Prints and records row by row. Cancelled after Ctrl-C, with the
// results so far saved; DataLoss, at the end, if a result was wrong. Throws the
// exceptions of failed calls.
absl::Status RunSweep(const BenchConfig& config, const Plan& plan,
                      const BenchRank& rank);

// Returns Cancelled: "interrupted; 3 rows were measured".
absl::Status Interrupted(int64_t count, absl::string_view what);

// Prints the combinations that the plan leaves out.
void PrintLeftOut(const Plan& plan, const BenchRank& rank);

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_SWEEP_RUN_SWEEP_H_
