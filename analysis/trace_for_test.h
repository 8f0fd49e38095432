// Runs made up for the tests of analysis/.

#ifndef ANALYSIS_TRACE_FOR_TEST_H_
#define ANALYSIS_TRACE_FOR_TEST_H_

#include <cstdint>
#include <string>

#include "analysis/run_trace.h"

namespace rankwise {

struct RunForTest {
  std::string binary = "ddp";
  int64_t world_size = 1;
  int64_t batch_size = 64;
  double step_seconds = 0.1;  // of every rank and step
  int64_t steps = 20;
  std::string run_id = "run";
};

// Every rank with its steps: 10 % exposed communication, 5 % data wait, flags
// batch_size, nproc and lr.
RunTrace MakeRun(const RunForTest& config);

}  // namespace rankwise

#endif  // ANALYSIS_TRACE_FOR_TEST_H_
