// What only a build with CUDA has of NCCL: a communicator of nccl.h itself,
// without PyTorch's process group above it, buffers that the process group's
// communicator has registered, and NCCL's log.
#ifndef RANKWISE_COMM_BENCH_NCCL_RAW_NCCL_H_
#define RANKWISE_COMM_BENCH_NCCL_RAW_NCCL_H_

#include <memory>
#include <string>

#include "ATen/core/Tensor.h"
#include "absl/status/statusor.h"
#include "c10/core/Device.h"
#include "comm_bench/collectives/collective.h"

namespace rankwise::comm_bench {

// One rank's, used by one thread. Errors are what ncclGetErrorString and
// ncclGetLastError say, and the call that failed. A peer that dies is not
// noticed: what waits for the device then waits until somebody ends the
// process, as the launcher does.
class RawNccl {
 public:
  virtual ~RawNccl() = default;

  // What the ranks of one communicator share: ncclGetUniqueId's 128 bytes, made
  // by one of them. Unimplemented in a build without CUDA.
  static absl::StatusOr<std::string> NewId();

  // ncclCommInitRankConfig: blocks until all `world_size` ranks have called it
  // with the same `id`.
  static absl::StatusOr<std::unique_ptr<RawNccl>> Connect(const std::string& id,
                                                          int rank,
                                                          int world_size,
                                                          c10::Device device);

  // Gives the calls to the device's current stream and returns. `input` and
  // `output` are contiguous and on the device. Throws c10::Error, as c10d's
  // calls do; its message begins with `collective`.
  virtual void Run(const char* collective, const NcclGroup& group,
                   const at::Tensor& input, const at::Tensor& output,
                   ReduceOp op) = 0;

  // Each tensor is a ncclMemAlloc of its own, registered by ncclCommRegister;
  // both end with the tensor. The communicator outlives it.
  virtual std::unique_ptr<RegisteredMemory> NewRegistered() = 0;
};

// A memory pool over ProcessGroupNCCL's allocator (ncclMemAlloc), which
// registerMemPool has made known to `group`'s communicator; what is allocated
// from it later is registered as it is made. `group` outlives it.
// Unimplemented in a build without CUDA; InvalidArgument for another backend;
// FailedPrecondition before the group's first call, or where this GPU cannot
// allocate for NCCL.
absl::StatusOr<std::unique_ptr<RegisteredMemory>> RegisteredWithC10d(
    c10d::ProcessGroup& group, c10::Device device);

// ncclResetDebugInit, which NCCL exports but no longer promises; nothing in a
// build without CUDA.
void RereadNcclVariables();

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_NCCL_RAW_NCCL_H_
