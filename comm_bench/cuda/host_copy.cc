#include <cuda_runtime_api.h>

#include <algorithm>
#include <vector>

#include "comm_bench/cuda/copies.h"
#include "comm_bench/cuda/cuda_status.h"
#include "comm_bench/cuda/gpu_memory.h"
#include "comm_bench/cuda/pattern.h"
#include "comm_bench/cuda/stream_timer.h"

namespace rankwise::micro {
namespace {

bool IsToGpu(HostCopy way) {
  return way == HostCopy::kToGpuPinned || way == HostCopy::kToGpuPageable;
}

bool IsPinned(HostCopy way) {
  return way == HostCopy::kToGpuPinned || way == HostCopy::kToHostPinned;
}

class HostCopyMeasurement : public Measurement {
 public:
  HostCopyMeasurement(HostCopy way, StreamTimer timer, GpuMemory gpu,
                      PinnedMemory pinned, int64_t bytes)
      : way_(way),
        timer_(std::move(timer)),
        gpu_(std::move(gpu)),
        pinned_(std::move(pinned)),
        pageable_(IsPinned(way) ? 0 : bytes),
        host_(IsPinned(way) ? pinned_.get() : pageable_.data(), bytes) {}

  // The pattern where the copy comes from, zeros where it goes.
  absl::Status Clear() override {
    if (IsToGpu(way_)) {
      FillPattern(0, host_);
      return FillGpuMemory(0, Bytes(), gpu_.get());
    }
    std::fill(host_.begin(), host_.end(), 0);
    return UploadPattern(Bytes(), gpu_.get());
  }

  absl::StatusOr<double> Run() override {
    const auto copy = [this] { return Start(); };
    return IsPinned(way_) ? timer_.Time(copy) : timer_.TimeWithHost(copy);
  }

  absl::Status Check() override {
    return IsToGpu(way_) ? CheckPatternOnGpu(gpu_.get(), Bytes())
                         : CheckPattern(0, host_);
  }

 private:
  int64_t Bytes() const { return static_cast<int64_t>(host_.size()); }

  absl::Status Start() {
    const bool to_gpu = IsToGpu(way_);
    return CudaStatus(
        cudaMemcpyAsync(
            to_gpu ? gpu_.get() : host_.data(),
            to_gpu ? host_.data() : gpu_.get(), host_.size(),
            to_gpu ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost,
            timer_.stream()),
        "a copy between host and GPU");
  }

  HostCopy way_;
  StreamTimer timer_;
  GpuMemory gpu_;
  PinnedMemory pinned_;
  std::vector<uint8_t> pageable_;
  absl::Span<uint8_t> host_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Measurement>> MakeHostCopy(HostCopy way,
                                                          int64_t bytes) {
  absl::StatusOr<StreamTimer> timer = StreamTimer::Make();
  if (!timer.ok()) return timer.status();
  absl::StatusOr<GpuMemory> gpu = AllocateGpuMemory(bytes);
  if (!gpu.ok()) return gpu.status();
  absl::StatusOr<PinnedMemory> pinned =
      AllocatePinnedMemory(IsPinned(way) ? bytes : 0);
  if (!pinned.ok()) return pinned.status();
  return std::make_unique<HostCopyMeasurement>(
      way, *std::move(timer), *std::move(gpu), *std::move(pinned), bytes);
}

}  // namespace rankwise::micro
