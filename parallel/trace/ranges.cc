#include "parallel/trace/ranges.h"

#include "torch/csrc/profiler/stubs/base.h"

namespace rankwise {

// libtorch_cuda registers stubs that call NVTX; without it they are empty.
bool RangesOn() {
  static const bool on = torch::profiler::impl::cudaStubs()->enabled();
  return on;
}

ScopedRange::ScopedRange(const std::string& name) : open_(RangesOn()) {
  if (open_) torch::profiler::impl::cudaStubs()->rangePush(name.c_str());
}

void ScopedRange::Close() {
  if (std::exchange(open_, false))
    torch::profiler::impl::cudaStubs()->rangePop();
}

}  // namespace rankwise
