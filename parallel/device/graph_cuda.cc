#include <exception>

#include "ATen/core/CachingHostAllocator.h"
#include "ATen/cuda/CUDAGraph.h"
#include "absl/strings/str_cat.h"
#include "c10/cuda/CUDACachingAllocator.h"
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
    // Running work must complete first: it may still use memory that the
    // captured work reads.
    C10_CUDA_CHECK(cudaDeviceSynchronize());
    const c10::cuda::CUDAStreamGuard stream_guard(RecordableStream());
    absl::Status status;
    try {
      // Thread-local: the loader's and NCCL's threads may use the device.
      graph_.capture_begin(pool_, cudaStreamCaptureModeThreadLocal);
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
  // The current stream, on which gradients are already computed; only the
  // default stream cannot be captured.
  c10::cuda::CUDAStream RecordableStream() const {
    const auto current = c10::cuda::getCurrentCUDAStream(device_.index());
    if (current != c10::cuda::getDefaultCUDAStream(device_.index()))
      return current;
    return c10::cuda::getStreamFromPool(/*isHighPriority=*/false,
                                        device_.index());
  }

  // A failed capture must be ended, too.
  absl::Status End(absl::Status status) {
    try {
      graph_.capture_end();
      return status;
    } catch (const std::exception& error) {
      if (status.ok()) status = absl::FailedPreconditionError(MessageOf(error));
    }
    (void)cudaGetLastError();  // clears the thread's last error
    StopAllocating();
    return status;
  }

  // capture_end() throws before it informs the allocators, which would still
  // assume a capture: blocks used by several streams would never be free again,
  // and the allocators' filter would call a destroyed graph.
  void StopAllocating() {
    namespace cuda = c10::cuda::CUDACachingAllocator;
    at::HostAllocator& host = *at::getHostAllocator(at::kCUDA);
    // Each throws if capture_end() has already called it.
    Try([&] { cuda::endAllocateToPool(device_.index(), pool_); });
    Try([&] { cuda::releasePool(device_.index(), pool_); });
    Try([&] { host.end_allocate_to_pool(pool_); });
    Try([&] { host.release_pool(pool_); });
  }

  template <typename Function>
  static void Try(Function function) {
    try {
      function();
    } catch (const std::exception&) {
    }
  }

  const c10::Device device_;
  const at::cuda::MempoolId_t pool_ = at::cuda::graph_pool_handle();
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
