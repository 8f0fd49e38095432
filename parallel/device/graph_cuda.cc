#include <exception>

#include "ATen/cuda/CUDAContext.h"
#include "ATen/cuda/CUDAGraph.h"
#include "absl/strings/str_cat.h"
#include "c10/cuda/CUDAGuard.h"
#include "c10/cuda/CUDAStream.h"
#include "c10/util/Exception.h"
#include "parallel/device/graph.h"

namespace rankwise {
namespace {

std::string MessageOf(const std::exception& error) {
  const auto* c10_error = dynamic_cast<const c10::Error*>(&error);
  return c10_error == nullptr ? error.what()
                              : c10_error->what_without_backtrace();
}

class CudaGraph : public DeviceGraph {
 public:
  explicit CudaGraph(c10::Device device) : device_(device) {}

  absl::Status Capture(const std::function<absl::Status()>& work) override {
    const c10::cuda::CUDAGuard device_guard(device_);
    // The default stream cannot be recorded. What runs now must be over, as it
    // may still use memory that the recording reads.
    C10_CUDA_CHECK(cudaDeviceSynchronize());
    const c10::cuda::CUDAStreamGuard stream_guard(c10::cuda::getStreamFromPool(
        /*isHighPriority=*/false, device_.index()));
    // Of this thread only: the loader's and NCCL's threads go on.
    graph_.capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
    absl::Status status;
    try {
      status = work();
    } catch (const std::exception& error) {
      status = absl::FailedPreconditionError(MessageOf(error));
    }
    return End(std::move(status));
  }

  void Replay() override {
    const c10::cuda::CUDAGuard device_guard(device_);
    graph_.replay();
  }

 private:
  // A recording that failed must be ended as well, and leaves an error behind
  // in the thread.
  absl::Status End(absl::Status status) {
    try {
      graph_.capture_end();
    } catch (const std::exception& error) {
      (void)cudaGetLastError();
      if (status.ok()) status = absl::FailedPreconditionError(MessageOf(error));
    }
    return status;
  }

  const c10::Device device_;
  at::cuda::CUDAGraph graph_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceGraph>> MakeDeviceGraph(
    c10::Device device) {
  if (!device.is_cuda() || !device.has_index()) {
    return absl::InvalidArgumentError(
        absl::StrCat("only GPUs have graphs; the device is ", device.str()));
  }
  return std::make_unique<CudaGraph>(device);
}

bool IsCapturing(c10::Device device) {
  if (!device.is_cuda()) return false;
  const c10::cuda::CUDAStream stream =
      c10::cuda::getCurrentCUDAStream(device.index());
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  C10_CUDA_CHECK(cudaStreamIsCapturing(stream.stream(), &status));
  return status != cudaStreamCaptureStatusNone;
}

}  // namespace rankwise
