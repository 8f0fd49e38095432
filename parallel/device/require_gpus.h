// For tests that need GPUs.
#ifndef RANKWISE_PARALLEL_DEVICE_REQUIRE_GPUS_H_
#define RANKWISE_PARALLEL_DEVICE_REQUIRE_GPUS_H_

#include <string>

#include "absl/strings/str_cat.h"
#include "parallel/device/device_facts.h"

namespace rankwise {

// Returns why a test that needs `gpus` GPUs cannot run here; "" if it can:
//   if (auto why = WhyTooFewGpus(2); !why.empty()) GTEST_SKIP() << why;
inline std::string WhyTooFewGpus(int gpus) {
  if (VisibleGpus() >= gpus) return "";
  if (VisibleGpus() == 0) return absl::StrCat("needs a GPU: ", WhyNoGpu());
  return absl::StrCat("needs ", gpus, " GPUs; ", VisibleGpus(), " visible");
}

// False for virtual GPUs (tests/virtual_gpu), whose kernels compute almost
// nothing: there a test checks launches, copies and waits, but no values.
inline bool GpusCompute() { return !IsVirtualGpu(0); }

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_DEVICE_REQUIRE_GPUS_H_
