#include "absl/status/status.h"
#include "comm_bench/nccl/c10d_registered.h"

namespace rankwise::comm_bench {

absl::StatusOr<std::unique_ptr<RegisteredMemory>> RegisteredWithC10d(
    c10d::ProcessGroup&, c10::Device) {
  return absl::UnimplementedError(
      "--registered: this binary was built without CUDA; build it with "
      "--config=cuda");
}

}  // namespace rankwise::comm_bench
