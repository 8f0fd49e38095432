#include "comm_bench/cuda/stream_timer.h"

#include <cuda_runtime_api.h>

#include "comm_bench/cuda/cuda_status.h"
#include "comm_bench/cuda/launch_kernels.h"

namespace rankwise::micro {
namespace {

constexpr int64_t kLongestHoldCycles = 10'000'000;
constexpr int64_t kGrowth = 10;
constexpr double kMillisecond = 1e-3;

bool IsReached(CUevent_st* event) {
  const cudaError_t error = cudaEventQuery(event);
  // CUDA keeps "not ready" as if it were an error.
  if (error == cudaErrorNotReady) (void)cudaGetLastError();
  return error == cudaSuccess;
}

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
  for (;;) {
    LaunchHold(cycles_, stream());
    bool too_late = false;
    absl::StatusOr<double> seconds = TimeWithHost([&] {
      const absl::Status given = work();
      too_late = given.ok() && IsReached(start_.get());
      return given;
    });
    if (!seconds.ok() || !too_late || cycles_ >= kLongestHoldCycles)
      return seconds;
    cycles_ *= kGrowth;
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

}  // namespace rankwise::micro
