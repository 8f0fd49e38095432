#include "parallel/device/require_gpus.h"

#include "absl/strings/str_cat.h"
#include "parallel/device/device_facts.h"

namespace rankwise {

std::string WhyNotOn(int gpus) {
  if (VisibleGpus() >= gpus) return "";
  if (VisibleGpus() == 0) return absl::StrCat("needs a GPU: ", WhyNoGpu());
  return absl::StrCat("needs ", gpus, " GPUs; ", VisibleGpus(), " visible");
}

}  // namespace rankwise
