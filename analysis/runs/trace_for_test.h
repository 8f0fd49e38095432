// Runs made up for the tests of analysis/.
#ifndef RANKWISE_ANALYSIS_RUNS_TRACE_FOR_TEST_H_
#define RANKWISE_ANALYSIS_RUNS_TRACE_FOR_TEST_H_

#include <cstdint>
#include <string>

#include "analysis/runs/run_trace.h"

namespace rankwise {

struct RunForTest {
  std::string binary = "ddp";
  int64_t world_size = 1;
  int64_t batch_size = 64;
  double step_seconds = 0.1;  // of every rank and step
  int64_t steps = 20;
  std::string run_id = "run";
  // Not empty: a pipeline of world_size / replicas ranks, `batch_size` examples
  // a micro-batch, `micro_batches` a step.
  std::string schedule = "";
  int64_t replicas = 1;
  int64_t micro_batches = 4;
  int64_t tokens_per_example = 0;  // 0: examples are images
};

// Every rank with its steps: 10 % exposed communication, 5 % data wait, flags
// batch_size, nproc and lr. Of a pipeline also the schedule records: 80 % of
// the step in the schedule, 60 % in its span, 30 % busy, 20 % waiting, 2 % in
// transfers of 1000 bytes; predicted is 70 % of the step with bubbles of 0.4
// and 0.6, from step 4 on.
RunTrace MakeRun(const RunForTest& config);

// As if every step had been launched as one graph: what it computed and
// communicated is captured_seconds.
void CaptureSteps(RunTrace& run);

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_RUNS_TRACE_FOR_TEST_H_
