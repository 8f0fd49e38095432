// Where a run's step time went, so that the parts add up to the step.
// docs/metrics.md has the formulas.

#ifndef ANALYSIS_LEDGER_LEDGER_H_
#define ANALYSIS_LEDGER_LEDGER_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "analysis/run_trace.h"
#include "analysis/throughput.h"

namespace rankwise {

// Seconds of a step; they add up to it.
struct LedgerParts {
  double compute_seconds = 0;
  // A rank only waited for communication: for gradients, or for a message that
  // was under way.
  double exposed_comm_seconds = 0;
  // Waiting for another stage's computation.
  double bubble_seconds = 0;
  double data_wait_seconds = 0;
  double residual_seconds = 0;  // whatever the others do not explain

  double Total() const {
    return compute_seconds + exposed_comm_seconds + bubble_seconds +
           data_wait_seconds + residual_seconds;
  }
};

struct RankLedger {
  int64_t rank = 0;
  LedgerParts parts;        // means over the steps after warm-up
  double busy_seconds = 0;  // median over them of compute_seconds
};

struct Ledger {
  std::vector<RankLedger> ranks;  // by rank
  // Means over the steps of what the step's critical rank did: the one that
  // computed longest, for which the others waited.
  LedgerParts critical;
  // Of a step, the compute time of its critical rank beyond the mean of its
  // ranks; mean over steps. Part of critical.compute_seconds.
  double imbalance_seconds = 0;
  // Of imbalance_seconds, what ranks that are all alike, each as variable from
  // step to step as they were, would show by chance: the expected maximum over
  // the ranks beyond the mean, from the ranks' own samples.
  double noise_seconds = 0;
  // Median over ranks and steps of |residual| / step.
  double median_residual_share = 0;
  bool separates_bubble = true;  // false: the records are from before schema
                                 // 1.3, and exposed transfers are in the bubble
};

// Fails, naming the file, where MeasureThroughput does.
absl::StatusOr<Ledger> MeasureLedger(const RunTrace& run,
                                     const ThroughputConfig& config);

}  // namespace rankwise

#endif  // ANALYSIS_LEDGER_LEDGER_H_
