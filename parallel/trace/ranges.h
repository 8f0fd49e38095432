// Named stretches of the program for NVIDIA's tools (NVTX), under the names
// that traces use.
#ifndef RANKWISE_PARALLEL_TRACE_RANGES_H_
#define RANKWISE_PARALLEL_TRACE_RANGES_H_

#include <string>

namespace rankwise {

// Whether anybody could see a range: builds with CUDA only.
bool RangesOn();

// In pairs, properly nested, on one thread. They do nothing where !RangesOn().
void PushRange(const std::string& name);
void PopRange();

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_TRACE_RANGES_H_
