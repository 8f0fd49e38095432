// The calls that comm_bench's records hold, as what is fitted.
#ifndef RANKWISE_ANALYSIS_COST_MODEL_COLLECTIVE_SAMPLES_H_
#define RANKWISE_ANALYSIS_COST_MODEL_COLLECTIVE_SAMPLES_H_

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "analysis/cost_model/cost_curve.h"
#include "analysis/runs/run_trace.h"

namespace rankwise {

// One collective of one world size over its sizes.
struct CollectiveSamples {
  std::string collective;
  std::string backend;
  int64_t world_size = 1;
  std::vector<CostSamples> sizes;  // by bytes and launch, all different
  // CollectiveRecord::bus_factor; NaN: no record says so.
  double bus_factor = std::numeric_limits<double>::quiet_NaN();
};

// Which of several runs count.
struct BenchmarkSelection {
  std::string backend = "";  // "": any
  int64_t most_ranks = 0;    // 0: any number

  bool Takes(const RunTrace& run) const;
};

// Of every iteration the slowest rank's time, divided by the record's trips;
// iterations that some rank calls late are left out. Rows by all ranks of a run
// of two or more count, through c10d, by the host's clock, with a warm cache,
// one call at a time, and neither captured nor with registered buffers. Where a
// collective was
// measured in several ways (dtype, op, root, in place, sync), the one with the
// most sizes over all runs counts; where the library chose another algorithm
// for the same size in another launch, the first counts. Each launch of each
// run has a number of its own. What is passed over is appended to `left_out`,
// with the reason, unless that is null.
//
// In the order of collective and world size.
std::vector<CollectiveSamples> CollectSamples(
    absl::Span<const RunTrace> runs, std::vector<std::string>* left_out,
    const BenchmarkSelection& selection = {});

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_COST_MODEL_COLLECTIVE_SAMPLES_H_
