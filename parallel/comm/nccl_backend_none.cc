#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "parallel/comm/nccl_backend.h"
#include "torch/csrc/distributed/c10d/Backend.hpp"
#include "torch/csrc/distributed/c10d/Store.hpp"

namespace rankwise {

void PrepareForNccl() {}

absl::StatusOr<c10::intrusive_ptr<c10d::Backend>> MakeNccl(
    const RankEnv& env, const GroupPlace& place,
    const c10::intrusive_ptr<c10d::Store>&, const NcclConfig& config,
    const c10::intrusive_ptr<c10d::Backend>&) {
  return absl::UnimplementedError(
      absl::StrCat(ConnectingFailed("NCCL", env, place),
                   "this binary was built without CUDA (", config.device.str(),
                   "); build it with --config=cuda"));
}

c10::intrusive_ptr<c10d::Work> WithoutTensors(
    const c10::intrusive_ptr<c10d::Work>& work) {
  return work;
}

void BesideCaptures(c10::Device, const std::function<void()>& ask) { ask(); }

std::string DumpNcclRecorder() { return ""; }

}  // namespace rankwise
