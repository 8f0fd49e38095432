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
    // What runs now must be over, as it may still use memory that the recording
    // reads.
    C10_CUDA_CHECK(cudaDeviceSynchronize());
    const c10::cuda::CUDAStreamGuard stream_guard(RecordableStream());
    absl::Status status;
    try {
      // Of this thread only: the loader's and NCCL's threads go on.
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
  // The current one, where gradients are made already; only the default stream
  // cannot be recorded.
  c10::cuda::CUDAStream RecordableStream() const {
    const auto current = c10::cuda::getCurrentCUDAStream(device_.index());
    if (current != c10::cuda::getDefaultCUDAStream(device_.index()))
      return current;
    return c10::cuda::getStreamFromPool(/*isHighPriority=*/false,
                                        device_.index());
  }

  // A recording that failed must be ended as well.
  absl::Status End(absl::Status status) {
    try {
      graph_.capture_end();
      return status;
    } catch (const std::exception& error) {
      if (status.ok()) status = absl::FailedPreconditionError(MessageOf(error));
    }
    (void)cudaGetLastError();  // stays behind in the thread
    StopAllocating();
    return status;
  }

  // capture_end() throws before it tells the allocators, which would go on
  // believing in a recording: blocks that several streams have used would never
  // be free again, and their filter would ask a graph that is gone.
  void StopAllocating() {
    namespace cuda = c10::cuda::CUDACachingAllocator;
    at::HostAllocator& host = *at::getHostAllocator(at::kCUDA);
    // Each throws where capture_end() came further than that.
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
