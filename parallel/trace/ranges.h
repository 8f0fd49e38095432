// Named stretches of the program for NVIDIA's tools (NVTX), under the names
// that traces use.
#ifndef RANKWISE_PARALLEL_TRACE_RANGES_H_
#define RANKWISE_PARALLEL_TRACE_RANGES_H_

#include <string>
#include <utility>

namespace rankwise {

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

#endif  // RANKWISE_PARALLEL_TRACE_RANGES_H_
