#include "absl/status/status.h"
#include "comm_bench/nccl/raw_nccl.h"

namespace rankwise::comm_bench {
namespace {

absl::Status NoCuda(const std::string& flag) {
  return absl::UnimplementedError(
      flag +
      ": this binary was built without CUDA; build it with "
      "--config=cuda");
}

}  // namespace

absl::StatusOr<std::string> RawNccl::NewId() { return NoCuda("--layer=nccl"); }

absl::StatusOr<std::unique_ptr<RawNccl>> RawNccl::Connect(const std::string&,
                                                          int, int,
                                                          c10::Device) {
  return NoCuda("--layer=nccl");
}

absl::StatusOr<std::unique_ptr<RegisteredMemory>> RegisteredWithC10d(
    c10d::ProcessGroup&, c10::Device) {
  return NoCuda("--registered");
}

void RereadNcclVariables() {}

}  // namespace rankwise::comm_bench
