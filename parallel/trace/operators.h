// Which of PyTorch's operators, and of the device's kernels, ran when.
#ifndef RANKWISE_PARALLEL_TRACE_OPERATORS_H_
#define RANKWISE_PARALLEL_TRACE_OPERATORS_H_

#include <cstdint>
#include <vector>

#include "parallel/trace/chrome_trace.h"

namespace rankwise {

// Watches the thread that calls Start, and autograd's threads that work for it,
// through PyTorch's profiler (Kineto). One at a time in a process. Throws what
// the profiler throws.
class OperatorRecording {
 public:
  // `device`: also the kernels and copies of CUDA devices.
  void Start(bool device);
  // What ran since Start. Times are of the steady clock. Lanes are "operators"
  // (with a number for further threads) and "device N stream S".
  std::vector<TraceSpan> Stop();

 private:
  int64_t steady_minus_system_ns_ = 0;
};

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_TRACE_OPERATORS_H_
