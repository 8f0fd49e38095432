#include "absl/status/status.h"
#include "comm_bench/nccl/raw_nccl.h"

namespace rankwise::comm_bench {
namespace {

absl::Status NoCuda() {
  return absl::UnimplementedError(
      "--layer=nccl: this binary was built without CUDA; build it with "
      "--config=cuda");
}

}  // namespace

absl::StatusOr<std::string> RawNccl::NewId() { return NoCuda(); }

absl::StatusOr<std::unique_ptr<RawNccl>> RawNccl::Connect(const std::string&,
                                                          int, int,
                                                          c10::Device) {
  return NoCuda();
}

}  // namespace rankwise::comm_bench
