// A GPU as the measurements use it: where CUDA's errors become absl::Status,
// memory that goes when its owner goes, and times of what a stream does. For
// files that are compiled with CUDA only.
#ifndef RANKWISE_COMM_BENCH_CUDA_GPU_H_
#define RANKWISE_COMM_BENCH_CUDA_GPU_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "comm_bench/cuda/kernels.h"

struct CUevent_st;

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

struct FreeGpuMemory {
  void operator()(uint8_t* memory) const { (void)cudaFree(memory); }
};
using GpuMemory = std::unique_ptr<uint8_t[], FreeGpuMemory>;

// Of the current GPU; aligned to 256 bytes. `bytes` may be 0.
// ResourceExhausted, with how much was requested and is free, where it does not
// fit.
absl::StatusOr<GpuMemory> AllocateGpuMemory(int64_t bytes);

struct FreePinnedMemory {
  void operator()(uint8_t* memory) const { (void)cudaFreeHost(memory); }
};
using PinnedMemory = std::unique_ptr<uint8_t[], FreePinnedMemory>;

// Of the host, locked in place, so that a GPU reads and writes it by itself.
absl::StatusOr<PinnedMemory> AllocatePinnedMemory(int64_t bytes);

// These block until done.
absl::Status Upload(absl::Span<const uint8_t> bytes, uint8_t* gpu);
absl::Status Download(const uint8_t* gpu, absl::Span<uint8_t> bytes);

// The pattern's bytes from 0.
absl::Status UploadPattern(int64_t bytes, uint8_t* gpu);
absl::Status CheckPatternOnGpu(const uint8_t* gpu, int64_t bytes);

// `start` over and over; copied within the GPU after the first time.
absl::Status UploadRepeated(absl::Span<const uint8_t> start, int64_t bytes,
                            uint8_t* gpu);

// Sets every byte.
absl::Status FillGpuMemory(uint8_t value, int64_t bytes, uint8_t* gpu);

struct DestroyStream {
  void operator()(CUstream_st* stream) const {
    (void)cudaStreamDestroy(stream);
  }
};
struct DestroyEvent {
  void operator()(CUevent_st* event) const { (void)cudaEventDestroy(event); }
};

// A stream of its own on the GPU that was current when it was made, which must
// be current in every call. Not thread-safe.
class StreamTimer {
 public:
  // Has no stream until a timer from Make is assigned to it.
  StreamTimer() = default;
  static absl::StatusOr<StreamTimer> Make();

  CudaStream stream() const { return stream_.get(); }

  // Seconds from when the stream gets to what `work` gives it to when it is
  // done. The stream is held until the host has given all of it, so that the
  // host's own time is not in it; a host that is interrupted for long can make
  // it longer, never shorter. Blocks until done.
  absl::StatusOr<double> Time(const std::function<absl::Status()>& work);

  // The same without holding the stream, for work in which the host takes part.
  absl::StatusOr<double> TimeWithHost(
      const std::function<absl::Status()>& work);

  // Blocks until the stream is idle.
  absl::Status Finish();

 private:
  // Of holding; grows when the host is found to need longer.
  int64_t cycles_ = 100'000;  // some 50 us
  std::unique_ptr<CUstream_st, DestroyStream> stream_;
  std::unique_ptr<CUevent_st, DestroyEvent> start_, end_;
};

}  // namespace rankwise::micro

#endif  // RANKWISE_COMM_BENCH_CUDA_GPU_H_
