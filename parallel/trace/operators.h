// Which of PyTorch's operators, and of the device's kernels, ran when; and
// named stretches of the program for NVIDIA's tools (NVTX), under the names
// that traces use.
#ifndef RANKWISE_PARALLEL_TRACE_OPERATORS_H_
#define RANKWISE_PARALLEL_TRACE_OPERATORS_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "parallel/trace/chrome_trace.h"

namespace rankwise {

// The profiler looks for GPUs even where none is requested, and complains of
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

// Whether anybody could see a range: builds with CUDA only.
bool RangesOn();

// Open from its construction to its end, or until another is assigned to it.
// Properly nested, on one thread. Does nothing where !RangesOn().
class ScopedRange {
 public:
  ScopedRange() = default;  // not open
  explicit ScopedRange(const std::string& name);
  ~ScopedRange() { Close(); }
  ScopedRange(ScopedRange&& other) noexcept
      : open_(std::exchange(other.open_, false)) {}
  ScopedRange& operator=(ScopedRange&& other) noexcept {
    if (this == &other) return *this;
    Close();
    open_ = std::exchange(other.open_, false);
    return *this;
  }

  void Close();

 private:
  bool open_ = false;
};

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_TRACE_OPERATORS_H_
