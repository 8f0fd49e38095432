#include "absl/status/status.h"
#include "parallel/device/device_facts.h"

namespace rankwise {

BuildFacts ThisBuild() { return {}; }

int VisibleGpus() { return 0; }

std::string WhyNoGpu() {
  return "this binary was built without CUDA; build it with --config=cuda";
}

absl::StatusOr<GpuFacts> DescribeGpu(int) {
  return absl::NotFoundError(WhyNoGpu());
}

}  // namespace rankwise
