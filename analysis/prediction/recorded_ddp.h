// What runs of ddp say about computing and about the buckets of gradients.

#ifndef ANALYSIS_PREDICTION_RECORDED_DDP_H_
#define ANALYSIS_PREDICTION_RECORDED_DDP_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "analysis/prediction/ddp_model.h"
#include "analysis/run_trace.h"
#include "analysis/throughput.h"

namespace rankwise {

// The computing of one rank's step.
struct ComputeParts {
  double before_backward_seconds = 0;
  double backward_seconds = 0;  // until the last bucket is ready
  double after_backward_seconds = 0;

  double Total() const {
    return before_backward_seconds + backward_seconds + after_backward_seconds;
  }
};

struct RecordedDdp {
  std::string source;
  int64_t world_size = 1;
  double batch = 0;  // examples of a rank's step
  bool skips_communication = false;
  bool fake = false;
  std::vector<ComputeParts> steps;  // of all ranks, after warm-up; not empty
  double step_seconds = 0;          // as measured: Throughput::step_seconds
  double peak_bytes = 0;            // of the fullest rank; 0: not known
};

// The buckets of one run that recorded its traffic: medians over its steps.
struct BucketPlan {
  int64_t world_size = 1;
  double batch = 0;
  std::vector<ReadyBucket> buckets;  // ready as a share of backward_seconds
  double tail_seconds = 0;     // after the last all-reduce, still in backward
  double broadcast_bytes = 0;  // of buffers, before forward
};

struct DdpRecordings {
  std::vector<RecordedDdp> runs;
  std::vector<BucketPlan> plans;
};

// `runs` as PredictableRuns gives them; those of other trainers are passed
// over. FailedPrecondition where some ran ddp and none recorded its traffic.
absl::StatusOr<DdpRecordings> CollectDdp(absl::Span<const RunTrace* const> runs,
                                         const ThroughputConfig& config);

// The plan of the batch next to `batch`, of the most ranks up to `world_size`,
// else of the fewest. `plans` is not empty.
const BucketPlan& NearestPlan(absl::Span<const BucketPlan> plans, double batch,
                              int64_t world_size);

}  // namespace rankwise

#endif  // ANALYSIS_PREDICTION_RECORDED_DDP_H_
