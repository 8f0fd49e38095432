// Where CUDA's errors become absl::Status. For files that are compiled with
// CUDA only.
#ifndef RANKWISE_COMM_BENCH_CUDA_CUDA_STATUS_H_
#define RANKWISE_COMM_BENCH_CUDA_CUDA_STATUS_H_

#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace rankwise::micro {

// `doing` completes "... failed": "copying 8 bytes to GPU 1". Forgets an error
// that CUDA keeps for the next caller. ResourceExhausted for memory that is
// short, else Internal.
inline absl::Status CudaStatus(cudaError_t error, absl::string_view doing) {
  if (error == cudaSuccess) return absl::OkStatus();
  (void)cudaGetLastError();
  const auto code = error == cudaErrorMemoryAllocation
                        ? absl::StatusCode::kResourceExhausted
                        : absl::StatusCode::kInternal;
  return absl::Status(
      code, absl::StrCat(doing, " failed: ", cudaGetErrorString(error), " (",
                         cudaGetErrorName(error), ")"));
}

}  // namespace rankwise::micro

#endif  // RANKWISE_COMM_BENCH_CUDA_CUDA_STATUS_H_
