#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "parallel/comm/backends/backends.h"
#include "torch/csrc/distributed/c10d/Backend.hpp"

namespace rankwise {

void PrepareForNccl() {}

absl::StatusOr<BackendPtr> MakeNccl(const BackendRequest& request) {
  return absl::UnimplementedError(absl::StrCat(
      ConnectingFailed("NCCL", request), "this binary was built without CUDA (",
      request.device.str(), "); build it with --config=cuda"));
}

c10::intrusive_ptr<c10d::Work> WithoutTensors(
    const c10::intrusive_ptr<c10d::Work>& work) {
  return work;
}

void AllowPollingDuringCapture(c10::Device, const std::function<void()>& ask) {
  ask();
}

std::string DumpNcclRecorder() { return ""; }

}  // namespace rankwise
