// How well one run used the devices of its pipelines, and how well that was
// predicted. docs/metrics.md has the formulas.
#ifndef RANKWISE_ANALYSIS_RUNS_PIPELINE_USE_H_
#define RANKWISE_ANALYSIS_RUNS_PIPELINE_USE_H_

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "analysis/runs/run_trace.h"
#include "analysis/runs/throughput.h"

namespace rankwise {

// One place in one pipeline: a rank, or, where a process runs stages on several
// devices, a stage. Medians over the steps after warm-up.
struct PipelineRankUse {
  int64_t replica = 0;
  int64_t pipeline_rank = 0;
  double idle_share = 0;        // of the rank's own time in the schedule, 0..1
  double wait_share = 0;        // of which blocked for messages
  double peak_activations = 0;  // of one stage and micro-batch each; largest
};

// Medians over the steps after warm-up. Shares are 0..1; predictions are NaN
// where no step has one.
struct PipelineUse {
  std::string schedule;
  int64_t pipeline_size = 1;
  int64_t replicas = 1;
  int64_t stages = 1;
  int64_t micro_batches = 1;
  std::vector<PipelineRankUse> ranks;  // by replica, then pipeline rank

  double schedule_seconds = 0;  // of the slowest rank
  double wall_bubble = 0;       // of the slowest rank's time, mean over ranks
  double span_bubble = 0;       // of each rank's own span, mean over ranks
  double predicted_seconds = std::numeric_limits<double>::quiet_NaN();
  double predicted_wall_bubble = std::numeric_limits<double>::quiet_NaN();
  double predicted_span_bubble = std::numeric_limits<double>::quiet_NaN();

  // A step; mean over the boundaries between stages. 0 with one stage.
  double boundary_transfer_seconds = 0;
  double boundary_bytes = 0;  // both directions

  // predicted / measured - 1 of the schedule's time; NaN without a prediction.
  double PredictionError() const;
};

// Fails, naming the file, where CheckRun does, where the run has no schedule
// records, where a step after warm-up lacks a record of a place in a pipeline,
// and where a schedule took no time.
absl::StatusOr<PipelineUse> MeasurePipelineUse(const RunTrace& run,
                                               const ThroughputConfig& config);

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_RUNS_PIPELINE_USE_H_
