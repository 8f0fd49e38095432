// Times of PyTorch's operators and of the device's kernels; and named ranges of
// the program for NVIDIA's tools (NVTX), under the names used in traces.
#ifndef RANKWISE_PARALLEL_TRACE_OPERATORS_H_
#define RANKWISE_PARALLEL_TRACE_OPERATORS_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "parallel/trace/chrome_trace.h"

namespace rankwise {

// Silences the profiler's warning that no GPU is found, printed even if none is
// requested. Sets an environment variable unless it is set: call it from main,
// before threads start.
void SilenceProfiler();

// Records the thread that calls Start, and autograd's threads that work for it,
// by PyTorch's profiler (Kineto). One recording at a time per process. Rethrows
// the profiler's exceptions.
class OperatorRecording {
 public:
  // `device`: also the kernels and copies of CUDA devices.
  void Start(bool device);
  // Returns the events since Start, in steady-clock time. Lanes are
  // "operators", "operators, thread 2" and so on, and "device N stream S".
  std::vector<TraceSpan> Stop();

 private:
  int64_t steady_minus_system_ns_ = 0;
};

// Whether ranges can be seen: in builds with CUDA only.
bool RangesOn();

// Open from its construction to its destruction, or until another is assigned
// to it. Ranges must be properly nested, on one thread. No effect if
// !RangesOn().
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
