// What one run achieved, and how well it used the devices of its pipelines.
// docs/metrics.md has the formulas.
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
  int64_t warmup_steps = 10;  // left out at the start of the run
};

// At least this many steps must be left after warm-up.
inline constexpr int64_t kMinMeasuredSteps = 5;

struct Throughput {
  int64_t steps = 0;  // measured, warm-up left out
  double examples_per_second = 0;
  double step_seconds = 0;  // median of JobStepSeconds
  // "comm wait": the share of all ranks' time, 0..1, spent waiting in
  // communication, including for late ranks. NaN if steps of several ranks were
  // captured (StepRecord::captured_seconds).
  double comm_wait_share = 0;
  double data_wait_share = 0;  // likewise
  int64_t global_batch = 0;    // examples a step, all replicas; median
  // Examples a step on the fullest rank, over the ranks or replicas that share
  // them, as in a pipeline; median.
  double largest_rank_batch = 0;
  bool captured = false;  // a measured step was launched as one graph
};

// The rank's steps after warm-up; none where there are too few.
absl::Span<const StepRecord> MeasuredSteps(const RankTrace& rank,
                                           const ThroughputConfig& config);

// Fails, naming the file, where CheckRun does, where no rank trains, where too
// few steps are left after warm-up, and where these took no time.
absl::Status CheckMeasurable(const RunTrace& run,
                             const ThroughputConfig& config);

// The job's steps after warm-up: those of the rank whose steps take longest in
// sum, as nothing aligns the ranks at a step's end (docs/metrics.md). Expects a
// run that CheckMeasurable accepts.
std::vector<double> JobStepSeconds(const RunTrace& run,
                                   const ThroughputConfig& config);

// Fails where CheckMeasurable does.
absl::StatusOr<Throughput> MeasureThroughput(const RunTrace& run,
                                             const ThroughputConfig& config);

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
};

// The schedule records of one step by replica and pipeline rank.
using SchedulesOfStep =
    std::map<std::pair<int64_t, int64_t>, const ScheduleRecord*>;

// Those of every step after warm-up by its number, which may be incomplete. Of
// a run that CheckRun accepts; fails where a place of a step has two.
absl::StatusOr<std::map<int64_t, SchedulesOfStep>> SchedulesByStep(
    const RunTrace& run, const ThroughputConfig& config);

// Fails, naming the file, where CheckRun does, where the run has no schedule
// records, where a step after warm-up lacks a record of a place in a pipeline,
// and where a schedule took no time.
absl::StatusOr<PipelineUse> MeasurePipelineUse(const RunTrace& run,
                                               const ThroughputConfig& config);

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_RUNS_THROUGHPUT_H_
