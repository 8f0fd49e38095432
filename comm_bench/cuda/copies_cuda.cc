#include <cuda_runtime_api.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "comm_bench/cuda/byte_pattern.h"
#include "comm_bench/cuda/gpu.h"
#include "comm_bench/cuda/measurements.h"
#include "third_party/absl/status_macros.h"

namespace rankwise::micro {
namespace {

class HostCopyMeasurement : public Measurement {
 public:
  HostCopyMeasurement(HostCopy copy, StreamTimer timer, GpuMemory gpu,
                      PinnedMemory pinned, int64_t bytes)
      : copy_(copy),
        timer_(std::move(timer)),
        gpu_(std::move(gpu)),
        pinned_(std::move(pinned)),
        pageable_(copy.pinned ? 0 : bytes),
        host_(copy.pinned ? pinned_.get() : pageable_.data(), bytes) {}

  // The pattern where the copy comes from, zeros where it goes.
  absl::Status Clear() override {
    if (copy_.to_gpu) {
      FillPattern(0, host_);
      return FillGpuMemory(0, Bytes(), gpu_.get());
    }
    std::fill(host_.begin(), host_.end(), 0);
    return UploadPattern(Bytes(), gpu_.get());
  }

  absl::StatusOr<double> Run() override {
    const auto copy = [this] { return Start(); };
    return copy_.pinned ? timer_.Time(copy) : timer_.TimeWithHost(copy);
  }

  absl::Status Check() override {
    return copy_.to_gpu ? CheckPatternOnGpu(gpu_.get(), Bytes())
                        : CheckPattern(0, host_);
  }

 private:
  int64_t Bytes() const { return static_cast<int64_t>(host_.size()); }

  absl::Status Start() {
    const bool to_gpu = copy_.to_gpu;
    return CudaStatus(
        cudaMemcpyAsync(
            to_gpu ? gpu_.get() : host_.data(),
            to_gpu ? host_.data() : gpu_.get(), host_.size(),
            to_gpu ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost,
            timer_.stream()),
        "a copy between host and GPU");
  }

  HostCopy copy_;
  StreamTimer timer_;
  GpuMemory gpu_;
  PinnedMemory pinned_;
  std::vector<uint8_t> pageable_;
  absl::Span<uint8_t> host_;
};

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
    RETURN_IF_ERROR(UploadPattern(bytes_, from_.get()));
    return FillGpuMemory(0, bytes_, to_.get());
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

absl::StatusOr<std::unique_ptr<Measurement>> MakeHostCopy(HostCopy copy,
                                                          int64_t bytes) {
  ASSIGN_OR_RETURN(StreamTimer timer, StreamTimer::Make());
  ASSIGN_OR_RETURN(GpuMemory gpu, AllocateGpuMemory(bytes));
  ASSIGN_OR_RETURN(PinnedMemory pinned,
                   AllocatePinnedMemory(copy.pinned ? bytes : 0));
  return std::make_unique<HostCopyMeasurement>(
      copy, std::move(timer), std::move(gpu), std::move(pinned), bytes);
}

absl::StatusOr<std::unique_ptr<Measurement>> MakeGpuCopy(GpuCopy by,
                                                         int64_t bytes) {
  ASSIGN_OR_RETURN(StreamTimer timer, StreamTimer::Make());
  ASSIGN_OR_RETURN(GpuMemory from, AllocateGpuMemory(bytes));
  ASSIGN_OR_RETURN(GpuMemory to, AllocateGpuMemory(bytes));
  return std::make_unique<GpuCopyMeasurement>(
      by, std::move(timer), std::move(from), std::move(to), bytes);
}

}  // namespace rankwise::micro
