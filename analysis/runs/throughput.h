// What one run achieved. docs/metrics.md has the formulas.
#ifndef RANKWISE_ANALYSIS_RUNS_THROUGHPUT_H_
#define RANKWISE_ANALYSIS_RUNS_THROUGHPUT_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
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
  // Of all ranks' time, 0..1; NaN: not known, as steps of several ranks were
  // captured (StepRecord::captured_seconds).
  double exposed_comm_share = 0;
  double data_wait_share = 0;  // likewise
  int64_t global_batch = 0;    // examples a step, all replicas; median
  // Examples a step on the fullest rank, in a pipeline those of its replica
  // over the ranks that share them; median.
  double largest_rank_batch = 0;
  bool captured = false;  // a measured step was launched as one graph
};

// Fails, naming the file, where CheckRun does, where too few steps are left
// after warm-up, and where these took no time.
absl::Status CheckMeasurable(const RunTrace& run,
                             const ThroughputConfig& config);

// The job's steps after warm-up: those of the rank whose steps take longest in
// sum. Each rank's steps follow each other, and nothing aligns the ranks at a
// step's end: a rank that ends a step late waits less in the next one. So the
// job takes the largest sum of one rank, not the sum of every step's largest.
// Expects a run that CheckMeasurable accepts.
std::vector<double> JobStepSeconds(const RunTrace& run,
                                   const ThroughputConfig& config);

// Fails where CheckMeasurable does.
absl::StatusOr<Throughput> MeasureThroughput(const RunTrace& run,
                                             const ThroughputConfig& config);

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_RUNS_THROUGHPUT_H_
