// Copies between a host and its GPU, and within the GPU.
#ifndef RANKWISE_COMM_BENCH_CUDA_COPIES_H_
#define RANKWISE_COMM_BENCH_CUDA_COPIES_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "comm_bench/cuda/measurement.h"

namespace rankwise::micro {

// Where a copy goes; pinned memory the GPU reads and writes by itself, pageable
// memory goes through the driver's own pinned pieces.
enum class HostCopy {
  kToGpuPinned,
  kToGpuPageable,
  kToHostPinned,
  kToHostPageable
};

// A copy of `bytes` by cudaMemcpyAsync between the host and the current GPU,
// timed by events.
absl::StatusOr<std::unique_ptr<Measurement>> MakeHostCopy(HostCopy way,
                                                          int64_t bytes);

enum class GpuCopy { kMemcpy, kKernel };

// A copy of `bytes` within the current GPU, by cudaMemcpyAsync or by
// copy_kernel.h, timed by events. The memory moves twice as much.
absl::StatusOr<std::unique_ptr<Measurement>> MakeGpuCopy(GpuCopy by,
                                                         int64_t bytes);

}  // namespace rankwise::micro

#endif  // RANKWISE_COMM_BENCH_CUDA_COPIES_H_
