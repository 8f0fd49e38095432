// Which of PyTorch's operators, and of the device's kernels, ran when.
#ifndef RANKWISE_PARALLEL_TRACE_OPERATORS_H_
#define RANKWISE_PARALLEL_TRACE_OPERATORS_H_

#include <cstdint>
#include <vector>

#include "parallel/trace/chrome_trace.h"

namespace rankwise {

// The profiler looks for GPUs even where none is asked for, and complains of
// there being none; not after this. Sets an environment variable (what the user
// has set stays): for main, before there are threads.
void SilenceProfiler();

// Watches the thread that calls Start, and autograd's threads that work for it,
// through PyTorch's profiler (Kineto). One at a time in a process. Throws what
// the profiler throws.
class OperatorRecording {
 public:
  // `device`: also the kernels and copies of CUDA devices.
  void Start(bool device);
  // What ran since Start. Times are of the steady clock. Lanes are
  // "operators", "operators, thread 2" and so on, and "device N stream S".
  std::vector<TraceSpan> Stop();

 private:
  int64_t steady_minus_system_ns_ = 0;
};

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_TRACE_OPERATORS_H_
