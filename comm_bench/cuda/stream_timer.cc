#include "comm_bench/cuda/stream_timer.h"

#include <cuda_runtime_api.h>

#include "comm_bench/cuda/cuda_status.h"
#include "comm_bench/cuda/launch_kernels.h"

namespace rankwise {
namespace {

// Some 50 us at first.
constexpr int64_t kFirstHoldCycles = 100'000;
constexpr int64_t kLongestHoldCycles = 100 * kFirstHoldCycles;
constexpr int64_t kGrowth = 10;
constexpr double kMillisecond = 1e-3;

absl::StatusOr<CUevent_st*> MakeEvent() {
  cudaEvent_t event = nullptr;
  const cudaError_t error = cudaEventCreate(&event);
  if (error != cudaSuccess) return CudaStatus(error, "making an event");
  return event;
}

}  // namespace

void DestroyStream::operator()(CUstream_st* stream) const {
  (void)cudaStreamDestroy(stream);
}

void DestroyEvent::operator()(CUevent_st* event) const {
  (void)cudaEventDestroy(event);
}

absl::StatusOr<StreamTimer> StreamTimer::Make() {
  StreamTimer timer;
  cudaStream_t stream = nullptr;
  const cudaError_t error =
      cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  if (error != cudaSuccess) return CudaStatus(error, "making a stream");
  timer.stream_.reset(stream);
  for (auto* event : {&timer.start_, &timer.end_}) {
    const absl::StatusOr<CUevent_st*> made = MakeEvent();
    if (!made.ok()) return made.status();
    event->reset(*made);
  }
  return timer;
}

absl::StatusOr<double> StreamTimer::Time(
    const std::function<absl::Status()>& work) {
  for (int64_t cycles = kFirstHoldCycles;; cycles *= kGrowth) {
    LaunchHold(cycles, stream());
    bool too_late = false;
    absl::StatusOr<double> seconds = TimeWithHost([&] {
      const absl::Status given = work();
      too_late = cudaEventQuery(start_.get()) == cudaSuccess;
      return given;
    });
    if (!seconds.ok() || !too_late || cycles >= kLongestHoldCycles)
      return seconds;
  }
}

absl::StatusOr<double> StreamTimer::TimeWithHost(
    const std::function<absl::Status()>& work) {
  absl::Status status =
      CudaStatus(cudaEventRecord(start_.get(), stream()), "marking a start");
  if (status.ok()) status = work();
  if (status.ok())
    status =
        CudaStatus(cudaEventRecord(end_.get(), stream()), "marking an end");
  const absl::Status finished = Finish();
  if (!status.ok()) return status;
  if (!finished.ok()) return finished;
  float milliseconds = 0;
  const cudaError_t error =
      cudaEventElapsedTime(&milliseconds, start_.get(), end_.get());
  if (error != cudaSuccess)
    return CudaStatus(error, "reading the time between two events");
  return milliseconds * kMillisecond;
}

absl::Status StreamTimer::Finish() {
  const cudaError_t error = cudaStreamSynchronize(stream());
  if (error != cudaSuccess) return CudaStatus(error, "the GPU's work");
  return CudaStatus(cudaGetLastError(), "starting work on the GPU");
}

}  // namespace rankwise
