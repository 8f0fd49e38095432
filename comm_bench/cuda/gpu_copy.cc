#include <cuda_runtime_api.h>

#include "comm_bench/cuda/copies.h"
#include "comm_bench/cuda/copy_kernel.h"
#include "comm_bench/cuda/cuda_status.h"
#include "comm_bench/cuda/gpu_memory.h"
#include "comm_bench/cuda/stream_timer.h"

namespace rankwise::micro {
namespace {

class GpuCopyMeasurement : public Measurement {
 public:
  GpuCopyMeasurement(GpuCopy by, StreamTimer timer, GpuMemory from,
                     GpuMemory to, int64_t bytes)
      : by_(by),
        timer_(std::move(timer)),
        from_(std::move(from)),
        to_(std::move(to)),
        bytes_(bytes) {}

  absl::Status Clear() override {
    const absl::Status status = UploadPattern(bytes_, from_.get());
    return status.ok() ? FillGpuMemory(0, bytes_, to_.get()) : status;
  }

  absl::StatusOr<double> Run() override {
    return timer_.Time([this] { return Start(); });
  }

  absl::Status Check() override { return CheckPatternOnGpu(to_.get(), bytes_); }

 private:
  absl::Status Start() {
    if (by_ == GpuCopy::kMemcpy) {
      return CudaStatus(
          cudaMemcpyAsync(to_.get(), from_.get(), bytes_,
                          cudaMemcpyDeviceToDevice, timer_.stream()),
          "a copy within the GPU");
    }
    LaunchCopy(from_.get(), to_.get(), bytes_, timer_.stream());
    return CudaStatus(cudaGetLastError(), "starting the copy kernel");
  }

  GpuCopy by_;
  StreamTimer timer_;
  GpuMemory from_, to_;
  int64_t bytes_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Measurement>> MakeGpuCopy(GpuCopy by,
                                                         int64_t bytes) {
  absl::StatusOr<StreamTimer> timer = StreamTimer::Make();
  if (!timer.ok()) return timer.status();
  absl::StatusOr<GpuMemory> from = AllocateGpuMemory(bytes);
  if (!from.ok()) return from.status();
  absl::StatusOr<GpuMemory> to = AllocateGpuMemory(bytes);
  if (!to.ok()) return to.status();
  return std::make_unique<GpuCopyMeasurement>(
      by, *std::move(timer), *std::move(from), *std::move(to), bytes);
}

}  // namespace rankwise::micro
