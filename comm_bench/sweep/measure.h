// Measures one row: a collective of one shape, checked and timed.
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
  // The first wrong element of any rank, as a sentence; "" if there is none, or
  // unchecked.
  std::string wrong;
};

// Describes the collective, its shape and place, but not its timing.
CallDescription DescribeCall(const Collective& collective, const Call& call);

// Returns the row of a series, with this rank's samples: an iteration makes
// `call.calls_per_iteration` calls, successive or concurrent.
Row Assemble(const CallDescription& call, const Series& series, int rank,
             const MeasureConfig& config);

// Collective over all ranks of `control`. `layer` belongs to this rank's group:
// that of all ranks, or one of several disjoint groups of equal size that run
// concurrently; `ranks` are the group's job ranks (empty if all). `control` has
// all ranks, or those of a group, which then runs alone. If calls cannot be
// captured or buffers cannot be registered on one rank, fails on all ranks,
// each with its own reason. Throws the exceptions of failed calls.
absl::StatusOr<Measurement> MeasureRow(Layer& layer, Control& control,
                                       const Collective& collective,
                                       const Call& call,
                                       const std::vector<int>& ranks,
                                       const MeasureConfig& config,
                                       const std::atomic<bool>* stop = nullptr);

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_SWEEP_MEASURE_H_
