// Synthetic runs with known durations for the tests of predictions.
#ifndef RANKWISE_ANALYSIS_PREDICTION_RUNS_FOR_TEST_H_
#define RANKWISE_ANALYSIS_PREDICTION_RUNS_FOR_TEST_H_

#include <cstdint>
#include <string>
#include <vector>

#include "analysis/prediction/recordings.h"
#include "analysis/runs/run_trace.h"
#include "parallel/pipeline/simulation/simulate.h"

namespace rankwise {

// Every rank's steps follow `trace`, and all-reduces cost alpha + bytes * beta;
// a single rank has no communication cost.
struct DdpRunForTest {
  int64_t world_size = 1;
  int64_t hosts = 1;
  int64_t batch = 64;  // examples per rank
  DdpStepTrace trace = {0.010, 0.020, 0.004, {{4e6, 0.010}, {2e6, 0.020}}};
  double alpha_seconds = 0;
  double beta_seconds_per_byte = 0;
  // Added to the time before backward, one value per step, cyclically; ranks
  // start at different positions of the list.
  std::vector<double> jitter_seconds = {0};
  int64_t steps = 40;
  int64_t traffic_steps = 3;  // from the third step on
  bool skip_communication = false;
  std::string backend = "gloo";
  double peak_bytes = 0;
  std::string run_id = "ddp";
};

RunTrace MakeDdpRun(const DdpRunForTest& config);

// A pipeline whose every step equals the simulation of its costs.
struct PipelineRunForTest {
  int64_t pp = 2;
  int64_t dp = 1;
  std::string schedule = "1f1b";
  int64_t chunks = 0;  // as in Layout
  int64_t micro_batches = 4;
  int64_t micro_batch = 16;                              // examples
  StageCosts costs = {0.010, 0.012, 0.008, 0.020, 1e6};  // of every stage
  LinkCosts link = {};
  double outside_seconds = 0.003;           // of every rank's step
  std::vector<double> gradient_bytes = {};  // per rank, if dp > 1
  double all_reduce_seconds = 0;            // of every stage
  double base_bytes = 0;  // a rank's memory without activations; 0 if unknown
  double bytes_per_activation = 0;
  int64_t steps = 20;
  int64_t timeline_steps = 3;
  bool skip_communication = false;  // only sets the flag: timelines remain
  std::string run_id = "pipeline";
};

RunTrace MakePipelineRun(const PipelineRunForTest& config);

// Returns the true step duration.
double PipelineStepSeconds(const PipelineRunForTest& config);

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_PREDICTION_RUNS_FOR_TEST_H_
