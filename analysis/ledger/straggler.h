// The rank that is slower than the others all the time. docs/metrics.md has the
// formulas.
#ifndef RANKWISE_ANALYSIS_LEDGER_STRAGGLER_H_
#define RANKWISE_ANALYSIS_LEDGER_STRAGGLER_H_

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "analysis/runs/run_trace.h"
#include "analysis/runs/throughput.h"
#include "analysis/stats/statistics.h"

namespace rankwise {

struct Straggler {
  int64_t rank = 0;
  // What a typical step of this rank takes of its own time, compute and data
  // wait, beyond the median of the ranks it is compared with: all others, or
  // in a pipeline those of the same stage in other replicas.
  double seconds = 0;
  Interval interval;  // 95 %, of `seconds`
  double share = 0;   // `seconds` of the median step
};

// The slowest rank over all `runs`, which are repetitions of one cell. None
// where that may be chance (its interval, widened for having picked one of
// several ranks, holds 0), where some repetition does not show it, where it
// costs less than 1 % of the step, and where the runs are too short to tell.
//
// The interval is by batch means (Law and Kelton, Simulation Modeling and
// Analysis, 1991, section 9.5.3) with Student's t: steps that follow each other
// may be correlated, batches of them hardly are. Within a batch a rank's time
// is its median, so that single slow steps of any rank count for nothing.
//
// Fails where MeasureLedger does, and where the runs differ in their ranks.
absl::StatusOr<std::optional<Straggler>> FindStraggler(
    absl::Span<const RunTrace* const> runs, const ThroughputConfig& config);

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_LEDGER_STRAGGLER_H_
