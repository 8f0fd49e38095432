// Synthetic runs for the tests of analysis/.
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
  // If not empty: a pipeline of world_size / replicas ranks with `batch_size`
  // examples per micro-batch and `micro_batches` per step.
  std::string schedule = "";
  int64_t replicas = 1;
  int64_t micro_batches = 4;
  int64_t tokens_per_example = 0;  // 0 for images
};

// Returns a run with all ranks and steps: 10 % exposed communication, 5 % data
// wait, flags batch_size, nproc and lr. A pipeline also has schedule records:
// 80 % of the step in the schedule, 60 % in its span, 30 % busy, 20 % waiting,
// 2 % in transfers of 1000 bytes; from step 4 on, the predicted duration is 70
// % of the step, with bubbles of 0.4 and 0.6.
RunTrace MakeRun(const RunForTest& config);

// Marks every step as launched as one graph: moves the durations of computation
// and communication to captured_seconds.
void CaptureSteps(RunTrace& run);

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_RUNS_TRACE_FOR_TEST_H_
