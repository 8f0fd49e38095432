// One row of the benchmark: a collective of one shape, checked and timed.
#ifndef RANKWISE_COMM_BENCH_SWEEP_MEASURE_H_
#define RANKWISE_COMM_BENCH_SWEEP_MEASURE_H_

#include <atomic>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "comm_bench/nccl/layer.h"
#include "comm_bench/output/row.h"
#include "comm_bench/sweep/config.h"

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
// of all ranks, or one of several of equal size whose ranks are disjoint, which
// then run at the same time; `ranks` are the group's, as ranks of the job
// (empty: all). `control` has all ranks, or those of the group, which then runs
// alone. Fails on all ranks where on one calls cannot be recorded or buffers
// not be registered, each rank with its own reason. Throws what a failed call
// throws.
absl::StatusOr<Measurement> MeasureRow(Layer& layer, Control& control,
                                       const Collective& collective,
                                       const Call& call,
                                       const std::vector<int>& ranks,
                                       const MeasureConfig& config,
                                       const std::atomic<bool>* stop = nullptr);

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_SWEEP_MEASURE_H_
