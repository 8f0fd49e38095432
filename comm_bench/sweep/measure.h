// Collectives over sizes, the benchmark's main mode; and one row of it: a
// collective of one shape, checked and timed.
#ifndef RANKWISE_COMM_BENCH_SWEEP_MEASURE_H_
#define RANKWISE_COMM_BENCH_SWEEP_MEASURE_H_

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "comm_bench/nccl/layer.h"
#include "comm_bench/output/row.h"
#include "comm_bench/sweep/plan.h"

namespace rankwise::comm_bench {

struct Measurement {
  Row row;
  // The first wrong element of any rank, as a sentence; empty: none, or not
  // checked.
  std::string wrong;
};

// The collective, its shape and where it runs; how it is timed is left open.
CallDescription DescribeCall(const Collective& collective, const Call& call);

// The row of a series, with this rank's samples: an iteration makes
// `call.trips` calls, each after the other or at the same time.
Row Assemble(const CallDescription& call, const Series& series, int rank,
             const MeasureConfig& config);

// Collective over all ranks of `control`. `layer` is of this rank's group: that
// of all ranks, or one of several whose ranks are disjoint, which then run at
// the same time; `ranks` are the group's, as ranks of the job (empty: all).
// Fails on all ranks where on one calls cannot be recorded or buffers not be
// registered, each rank with its own reason. Throws what a failed call throws.
absl::StatusOr<Measurement> MeasureRow(Layer& layer, Control& control,
                                       const Collective& collective,
                                       const Call& call,
                                       const std::vector<int>& ranks,
                                       const MeasureConfig& config,
                                       const std::atomic<bool>* stop = nullptr);

// Collective. Prints and records row by row. Cancelled after Ctrl-C, with what
// was measured kept; DataLoss, at the end, where a result was wrong. Throws
// what a failed call throws.
absl::Status RunSweep(const BenchConfig& config, const Plan& plan,
                      const BenchRank& rank);

// Cancelled: "interrupted; 3 rows were measured".
absl::Status Interrupted(int64_t count, absl::string_view what);

// Says what the plan has left out.
void PrintLeftOut(const Plan& plan, const BenchRank& rank);

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_SWEEP_MEASURE_H_
