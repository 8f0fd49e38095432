#include <cuda_runtime_api.h>

#include <algorithm>
#include <vector>

#include "comm_bench/cuda/byte_pattern.h"
#include "comm_bench/cuda/gpu.h"
#include "comm_bench/cuda/measurements.h"
#include "third_party/absl/status_macros.h"

namespace rankwise::micro {
namespace {

struct HostCopyMeasurement : Measurement {
  // The pattern where the copy comes from, zeros where it goes.
  absl::Status Clear() override {
    if (copy.to_gpu) {
      FillPattern(0, host);
      return FillGpuMemory(0, Bytes(), gpu.get());
    }
    std::fill(host.begin(), host.end(), 0);
    return UploadPattern(Bytes(), gpu.get());
  }

  absl::StatusOr<double> Run() override {
    const auto start = [this] { return Start(); };
    return copy.pinned ? timer.Time(start) : timer.TimeWithHost(start);
  }

  absl::Status Check() override {
    return copy.to_gpu ? CheckPatternOnGpu(gpu.get(), Bytes())
                       : CheckPattern(0, host);
  }

  int64_t Bytes() const { return static_cast<int64_t>(host.size()); }

  absl::Status Start() {
    const bool to_gpu = copy.to_gpu;
    return CudaStatus(
        cudaMemcpyAsync(
            to_gpu ? gpu.get() : host.data(), to_gpu ? host.data() : gpu.get(),
            host.size(),
            to_gpu ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost,
            timer.stream()),
        "a copy between host and GPU");
  }

  HostCopy copy;
  StreamTimer timer;
  GpuMemory gpu;
  PinnedMemory pinned;
  std::vector<uint8_t> pageable;
  absl::Span<uint8_t> host;
};

struct GpuCopyMeasurement : Measurement {
  absl::Status Clear() override {
    RETURN_IF_ERROR(UploadPattern(bytes, from.get()));
    return FillGpuMemory(0, bytes, to.get());
  }

  absl::StatusOr<double> Run() override {
    return timer.Time([this] { return Start(); });
  }

  absl::Status Check() override { return CheckPatternOnGpu(to.get(), bytes); }

  absl::Status Start() {
    if (by == GpuCopy::kMemcpy) {
      return CudaStatus(
          cudaMemcpyAsync(to.get(), from.get(), bytes, cudaMemcpyDeviceToDevice,
                          timer.stream()),
          "a copy within the GPU");
    }
    LaunchCopy(from.get(), to.get(), bytes, timer.stream());
    return CudaStatus(cudaGetLastError(), "starting the copy kernel");
  }

  GpuCopy by = GpuCopy::kMemcpy;
  StreamTimer timer;
  GpuMemory from, to;
  int64_t bytes = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Measurement>> MakeHostCopy(HostCopy copy,
                                                          int64_t bytes) {
  auto made = std::make_unique<HostCopyMeasurement>();
  made->copy = copy;
  ASSIGN_OR_RETURN(made->timer, StreamTimer::Make());
  ASSIGN_OR_RETURN(made->gpu, AllocateGpuMemory(bytes));
  if (copy.pinned) {
    ASSIGN_OR_RETURN(made->pinned, AllocatePinnedMemory(bytes));
    made->host = {made->pinned.get(), static_cast<size_t>(bytes)};
  } else {
    made->pageable.resize(bytes);
    made->host = absl::MakeSpan(made->pageable);
  }
  return made;
}

absl::StatusOr<std::unique_ptr<Measurement>> MakeGpuCopy(GpuCopy by,
                                                         int64_t bytes) {
  auto made = std::make_unique<GpuCopyMeasurement>();
  made->by = by;
  made->bytes = bytes;
  ASSIGN_OR_RETURN(made->timer, StreamTimer::Make());
  ASSIGN_OR_RETURN(made->from, AllocateGpuMemory(bytes));
  ASSIGN_OR_RETURN(made->to, AllocateGpuMemory(bytes));
  return made;
}

}  // namespace rankwise::micro
