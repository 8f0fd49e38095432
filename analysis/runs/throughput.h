// Throughput of one run, and the device utilization of its pipelines. Formulas:
// docs/metrics.md.
#ifndef RANKWISE_ANALYSIS_RUNS_THROUGHPUT_H_
#define RANKWISE_ANALYSIS_RUNS_THROUGHPUT_H_

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "analysis/runs/run_trace.h"

namespace rankwise {

struct ThroughputConfig {
  int64_t warmup_steps = 10;  // excluded at the start of the run
};

// minimum number of steps after warm-up
inline constexpr int64_t kMinMeasuredSteps = 5;

struct Throughput {
  int64_t steps = 0;  // measured, without warm-up
  double examples_per_second = 0;
  double step_seconds = 0;  // median of JobStepSeconds
  // "comm wait": the share (0 to 1) of all ranks' time spent waiting in
  // communication, including for late ranks. NaN if steps of several ranks were
  // captured (StepRecord::captured_seconds).
  double comm_wait_share = 0;
  double data_wait_share = 0;  // waiting for data, likewise
  int64_t global_batch = 0;    // examples per step, all replicas; median
  // Examples per step on the fullest rank, divided by the ranks or replicas
  // that share them, as in a pipeline; median.
  double largest_rank_batch = 0;
  bool captured = false;  // whether a measured step was a captured graph
};

// Returns the rank's steps after warm-up; empty if there are too few.
absl::Span<const StepRecord> MeasuredSteps(const RankTrace& rank,
                                           const ThroughputConfig& config);

// Fails, naming the file, if CheckRun does, if no rank trains, if too few steps
// remain after warm-up, or if they took no time.
absl::Status CheckMeasurable(const RunTrace& run,
                             const ThroughputConfig& config);

// Returns the durations of the job's steps after warm-up: those of the rank
// with the longest total, as nothing aligns the ranks at the end of a step
// (docs/metrics.md). Requires a run that CheckMeasurable accepts.
std::vector<double> JobStepSeconds(const RunTrace& run,
                                   const ThroughputConfig& config);

// Fails if CheckMeasurable does.
absl::StatusOr<Throughput> MeasureThroughput(const RunTrace& run,
                                             const ThroughputConfig& config);

// One position in a pipeline: a rank, or a stage if a process runs stages on
// several devices. Medians over the steps after warm-up.
struct PipelineRankUse {
  int64_t replica = 0;
  int64_t pipeline_rank = 0;
  double idle_share = 0;        // share of the rank's own schedule time, 0 to 1
  double wait_share = 0;        // part of idle_share blocked on messages
  double peak_activations = 0;  // maximum; each of one stage and micro-batch
};

// Medians over the steps after warm-up. Shares are 0 to 1; predictions are NaN
// if no step has one.
struct PipelineUse {
  std::string schedule;
  int64_t pipeline_size = 1;
  int64_t replicas = 1;
  int64_t stages = 1;
  int64_t micro_batches = 1;
  std::vector<PipelineRankUse> ranks;  // by replica, then pipeline rank

  double schedule_seconds = 0;  // slowest rank
  double wall_bubble = 0;  // share of the slowest rank's time, mean over ranks
  double span_bubble = 0;  // share of each rank's own span, mean over ranks
  double predicted_seconds = std::numeric_limits<double>::quiet_NaN();
  double predicted_wall_bubble = std::numeric_limits<double>::quiet_NaN();
  double predicted_span_bubble = std::numeric_limits<double>::quiet_NaN();

  // per step; mean over the boundaries between stages; 0 with one stage
  double boundary_transfer_seconds = 0;
  double boundary_bytes = 0;  // both directions
};

// schedule records of one step by replica and pipeline rank
using SchedulesOfStep =
    std::map<std::pair<int64_t, int64_t>, const ScheduleRecord*>;

// Returns the schedule records of every step after warm-up, by step number; a
// step may be incomplete. Requires a run that CheckRun accepts; fails if a
// position has two records in a step.
absl::StatusOr<std::map<int64_t, SchedulesOfStep>> SchedulesByStep(
    const RunTrace& run, const ThroughputConfig& config);

// Fails, naming the file, if CheckRun does, if the run has no schedule records,
// if a step after warm-up lacks the record of a position in a pipeline, or if a
// schedule took no time.
absl::StatusOr<PipelineUse> MeasurePipelineUse(const RunTrace& run,
                                               const ThroughputConfig& config);

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_RUNS_THROUGHPUT_H_
