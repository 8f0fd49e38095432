#include "parallel/trace/ranges.h"

#include "torch/csrc/profiler/stubs/base.h"

namespace rankwise {

// libtorch_cuda registers stubs that call NVTX; without it they are empty.
bool RangesOn() {
  static const bool on = torch::profiler::impl::cudaStubs()->enabled();
  return on;
}

void PushRange(const std::string& name) {
  if (RangesOn()) torch::profiler::impl::cudaStubs()->rangePush(name.c_str());
}

void PopRange() {
  if (RangesOn()) torch::profiler::impl::cudaStubs()->rangePop();
}

}  // namespace rankwise
