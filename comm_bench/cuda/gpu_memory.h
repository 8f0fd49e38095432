// Memory that goes when its owner goes. For files that are compiled with CUDA
// only.
#ifndef RANKWISE_COMM_BENCH_CUDA_GPU_MEMORY_H_
#define RANKWISE_COMM_BENCH_CUDA_GPU_MEMORY_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace rankwise::micro {

struct FreeGpuMemory {
  void operator()(uint8_t* memory) const;
};
using GpuMemory = std::unique_ptr<uint8_t[], FreeGpuMemory>;

// Of the current GPU; aligned to 256 bytes. `bytes` may be 0.
// ResourceExhausted, with how much was asked for and is free, where it does not
// fit.
absl::StatusOr<GpuMemory> AllocateGpuMemory(int64_t bytes);

struct FreePinnedMemory {
  void operator()(uint8_t* memory) const;
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

}  // namespace rankwise::micro

#endif  // RANKWISE_COMM_BENCH_CUDA_GPU_MEMORY_H_
