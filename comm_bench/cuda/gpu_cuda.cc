#include <cuda_runtime_api.h>

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "comm_bench/cuda/byte_pattern.h"
#include "comm_bench/cuda/gpu.h"
#include "third_party/absl/status_macros.h"

namespace rankwise::micro {
namespace {

// A whole buffer need not be on the host twice.
constexpr int64_t kPieceBytes = int64_t{64} << 20;

std::string FreeText() {
  size_t free = 0, total = 0;
  if (cudaMemGetInfo(&free, &total) != cudaSuccess) {
    (void)cudaGetLastError();
    return "";
  }
  return absl::StrCat(" (", free, " of ", total, " bytes are free)");
}

// A copy from pageable memory may end after the call.
absl::Status Finish(cudaError_t error, absl::string_view doing) {
  if (error == cudaSuccess) error = cudaDeviceSynchronize();
  return CudaStatus(error, doing);
}

constexpr int64_t kLongestHoldCycles = 10'000'000;
constexpr int64_t kGrowth = 10;
constexpr double kMillisecond = 1e-3;

bool IsReached(CUevent_st* event) {
  const cudaError_t error = cudaEventQuery(event);
  // CUDA keeps "not ready" as if it were an error.
  if (error == cudaErrorNotReady) (void)cudaGetLastError();
  return error == cudaSuccess;
}

}  // namespace

absl::StatusOr<GpuMemory> AllocateGpuMemory(int64_t bytes) {
  void* memory = nullptr;
  RETURN_IF_ERROR(CudaStatus(
      cudaMalloc(&memory, std::max<int64_t>(bytes, 1)),
      absl::StrCat("allocating ", bytes, " bytes on the GPU", FreeText())));
  return GpuMemory(static_cast<uint8_t*>(memory));
}

absl::StatusOr<PinnedMemory> AllocatePinnedMemory(int64_t bytes) {
  void* memory = nullptr;
  RETURN_IF_ERROR(CudaStatus(
      cudaHostAlloc(&memory, std::max<int64_t>(bytes, 1), cudaHostAllocDefault),
      absl::StrCat("allocating ", bytes, " bytes of pinned memory")));
  return PinnedMemory(static_cast<uint8_t*>(memory));
}

absl::Status Upload(absl::Span<const uint8_t> bytes, uint8_t* gpu) {
  if (bytes.empty()) return absl::OkStatus();
  return Finish(
      cudaMemcpy(gpu, bytes.data(), bytes.size(), cudaMemcpyHostToDevice),
      absl::StrCat("copying ", bytes.size(), " bytes to the GPU"));
}

absl::Status Download(const uint8_t* gpu, absl::Span<uint8_t> bytes) {
  if (bytes.empty()) return absl::OkStatus();
  return Finish(
      cudaMemcpy(bytes.data(), gpu, bytes.size(), cudaMemcpyDeviceToHost),
      absl::StrCat("copying ", bytes.size(), " bytes from the GPU"));
}

absl::Status UploadPattern(int64_t bytes, uint8_t* gpu) {
  std::vector<uint8_t> piece(std::min(bytes, kPatternPeriod));
  FillPattern(0, absl::MakeSpan(piece));
  return UploadRepeated(piece, bytes, gpu);
}

absl::Status CheckPatternOnGpu(const uint8_t* gpu, int64_t bytes) {
  std::vector<uint8_t> piece(std::min(bytes, kPieceBytes));
  for (int64_t first = 0; first < bytes; first += kPieceBytes) {
    const auto span =
        absl::MakeSpan(piece).first(std::min(kPieceBytes, bytes - first));
    RETURN_IF_ERROR(Download(gpu + first, span));
    RETURN_IF_ERROR(CheckPattern(first, span));
  }
  return absl::OkStatus();
}

absl::Status UploadRepeated(absl::Span<const uint8_t> start, int64_t bytes,
                            uint8_t* gpu) {
  if (bytes == 0) return absl::OkStatus();
  int64_t filled = std::min<int64_t>(start.size(), bytes);
  RETURN_IF_ERROR(Upload(start.first(filled), gpu));
  while (filled < bytes) {
    const int64_t more = std::min(filled, bytes - filled);
    RETURN_IF_ERROR(
        Finish(cudaMemcpy(gpu + filled, gpu, more, cudaMemcpyDeviceToDevice),
               "repeating a pattern on the GPU"));
    filled += more;
  }
  return absl::OkStatus();
}

absl::Status FillGpuMemory(uint8_t value, int64_t bytes, uint8_t* gpu) {
  return Finish(cudaMemset(gpu, value, bytes), "filling memory of the GPU");
}

absl::StatusOr<StreamTimer> StreamTimer::Make() {
  StreamTimer timer;
  cudaStream_t stream = nullptr;
  RETURN_IF_ERROR(
      CudaStatus(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
                 "making a stream"));
  timer.stream_.reset(stream);
  for (auto* event : {&timer.start_, &timer.end_}) {
    cudaEvent_t made = nullptr;
    RETURN_IF_ERROR(CudaStatus(cudaEventCreate(&made), "making an event"));
    event->reset(made);
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
  RETURN_IF_ERROR(
      CudaStatus(cudaEventElapsedTime(&milliseconds, start_.get(), end_.get()),
                 "reading the time between two events"));
  return milliseconds * kMillisecond;
}

absl::Status StreamTimer::Finish() {
  RETURN_IF_ERROR(
      CudaStatus(cudaStreamSynchronize(stream()), "the GPU's work"));
  return CudaStatus(cudaGetLastError(), "starting work on the GPU");
}

}  // namespace rankwise::micro
