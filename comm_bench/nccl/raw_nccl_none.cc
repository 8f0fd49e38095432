#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "comm_bench/nccl/layer.h"
#include "comm_bench/nccl/nccl_log.h"

namespace rankwise::comm_bench {
namespace {

absl::Status NoCuda(const char* flag) {
  return absl::UnimplementedError(
      absl::StrCat(flag,
                   ": this binary was built without CUDA; build it with "
                   "--config=cuda"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Layer>> ConnectNcclLayer(Control&,
                                                        const std::vector<int>&,
                                                        c10::Device) {
  return NoCuda("--layer=nccl");
}

absl::StatusOr<std::unique_ptr<RegisteredMemory>> RegisteredWithC10d(
    c10d::ProcessGroup&, c10::Device) {
  return NoCuda("--registered");
}

void RereadNcclVariables() {}

}  // namespace rankwise::comm_bench
