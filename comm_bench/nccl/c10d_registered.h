// Buffers that PyTorch's NCCL process group has registered.
#ifndef RANKWISE_COMM_BENCH_NCCL_C10D_REGISTERED_H_
#define RANKWISE_COMM_BENCH_NCCL_C10D_REGISTERED_H_

#include <memory>

#include "absl/status/statusor.h"
#include "c10/core/Device.h"
#include "comm_bench/collectives/registered_memory.h"

namespace c10d {
class ProcessGroup;
}  // namespace c10d

namespace rankwise::comm_bench {

// A memory pool over ProcessGroupNCCL's allocator (ncclMemAlloc), which
// registerMemPool has made known to `group`'s communicator; what is allocated
// from it later is registered as it is made. `group` outlives it.
// Unimplemented in a build without CUDA; InvalidArgument for another backend;
// FailedPrecondition before the group's first call, or where this GPU cannot
// allocate for NCCL.
absl::StatusOr<std::unique_ptr<RegisteredMemory>> RegisteredWithC10d(
    c10d::ProcessGroup& group, c10::Device device);

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_NCCL_C10D_REGISTERED_H_
