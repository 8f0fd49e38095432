#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "c10/cuda/CUDAGuard.h"
#include "comm_bench/cuda/gpu.h"
#include "comm_bench/cuda/measurements.h"
#include "comm_bench/cuda/peer_copy.h"
#include "parallel/device/device_facts.h"
#include "third_party/absl/status_macros.h"

namespace rankwise::micro {
namespace {

// Makes a GPU the current one while it lives.
c10::cuda::CUDAGuard Current(int gpu) {
  return c10::cuda::CUDAGuard(static_cast<c10::DeviceIndex>(gpu));
}

// Lets GPU `from` reach the memory of GPU `to`, where it can.
class PeerAccess {
 public:
  static absl::StatusOr<PeerAccess> Enable(int from, int to) {
    PeerAccess access(from, to);
    int can = 0;
    RETURN_IF_ERROR(CudaStatus(
        cudaDeviceCanAccessPeer(&can, from, to),
        absl::StrCat("asking whether GPU ", from, " reaches GPU ", to)));
    if (can == 0) return access;
    const c10::cuda::CUDAGuard current = Current(from);
    const cudaError_t error = cudaDeviceEnablePeerAccess(to, 0);
    access.possible_ = true;
    access.enabled_here_ = error == cudaSuccess;
    if (error == cudaErrorPeerAccessAlreadyEnabled) {
      (void)cudaGetLastError();
      return access;
    }
    RETURN_IF_ERROR(CudaStatus(
        error, absl::StrCat("letting GPU ", from, " reach GPU ", to)));
    return access;
  }

  ~PeerAccess() {
    if (!enabled_here_) return;
    const c10::cuda::CUDAGuard current = Current(from_);
    (void)cudaDeviceDisablePeerAccess(to_);
  }
  PeerAccess(PeerAccess&& other) noexcept
      : from_(other.from_),
        to_(other.to_),
        possible_(other.possible_),
        enabled_here_(std::exchange(other.enabled_here_, false)) {}

  bool possible() const { return possible_; }

 private:
  PeerAccess(int from, int to) : from_(from), to_(to) {}

  int from_, to_;
  bool possible_ = false;
  bool enabled_here_ = false;
};

absl::StatusOr<GpuMemory> AllocateOn(int gpu, int64_t bytes) {
  const c10::cuda::CUDAGuard current = Current(gpu);
  absl::StatusOr<GpuMemory> memory = AllocateGpuMemory(bytes);
  if (memory.ok()) return memory;
  return absl::Status(
      memory.status().code(),
      absl::StrCat("GPU ", gpu, ": ", std::string(memory.status().message())));
}

class Peers : public Measurement {
 public:
  Peers(int from, int to, int64_t bytes, StreamTimer timer, PeerAccess there,
        PeerAccess back, GpuMemory source, GpuMemory target)
      : from_(from),
        to_(to),
        bytes_(bytes),
        there_(std::move(there)),
        back_(std::move(back)),
        timer_(std::move(timer)),
        source_(std::move(source)),
        target_(std::move(target)) {}

  // Whether the GPUs reach each other's memory.
  bool direct() const { return there_.possible() && back_.possible(); }

  absl::Status Clear() override {
    {
      const c10::cuda::CUDAGuard current = Current(from_);
      RETURN_IF_ERROR(UploadPattern(bytes_, source_.get()));
    }
    const c10::cuda::CUDAGuard current = Current(to_);
    return FillGpuMemory(0, bytes_, target_.get());
  }

  absl::StatusOr<double> Run() override {
    const c10::cuda::CUDAGuard current = Current(from_);
    // A copy through the host's memory needs the host.
    const auto copy = [this] { return Start(); };
    return direct() ? timer_.Time(copy) : timer_.TimeWithHost(copy);
  }

  absl::Status Check() override {
    const c10::cuda::CUDAGuard current = Current(to_);
    return CheckPatternOnGpu(target_.get(), bytes_);
  }

 private:
  absl::Status Start() {
    return CudaStatus(cudaMemcpyPeerAsync(target_.get(), to_, source_.get(),
                                          from_, bytes_, timer_.stream()),
                      absl::StrCat("a copy from GPU ", from_, " to GPU ", to_));
  }

  int from_, to_;
  int64_t bytes_;
  PeerAccess there_, back_;
  StreamTimer timer_;
  GpuMemory source_, target_;
};

absl::StatusOr<std::unique_ptr<Peers>> MakePeers(int from, int to,
                                                 int64_t bytes) {
  ASSIGN_OR_RETURN(PeerAccess there, PeerAccess::Enable(from, to));
  ASSIGN_OR_RETURN(PeerAccess back, PeerAccess::Enable(to, from));
  const c10::cuda::CUDAGuard current = Current(from);
  ASSIGN_OR_RETURN(StreamTimer timer, StreamTimer::Make());
  ASSIGN_OR_RETURN(GpuMemory source, AllocateOn(from, bytes));
  ASSIGN_OR_RETURN(GpuMemory target, AllocateOn(to, bytes));
  return std::make_unique<Peers>(from, to, bytes, std::move(timer),
                                 std::move(there), std::move(back),
                                 std::move(source), std::move(target));
}

// The median of several copies, checked before and after: the timed copies go
// to cleared memory, too.
absl::StatusOr<double> CheckedSeconds(Measurement& copy) {
  constexpr int kRepetitions = 7;
  RETURN_IF_ERROR(WarmUpAndCheck(copy));
  RETURN_IF_ERROR(copy.Clear());
  std::array<double, kRepetitions> seconds = {};
  for (double& each : seconds) {
    ASSIGN_OR_RETURN(each, copy.Run());
  }
  RETURN_IF_ERROR(copy.Check());
  std::sort(seconds.begin(), seconds.end());
  return seconds[kRepetitions / 2];
}

absl::StatusOr<PeerCopy> MeasurePair(int from, int to, int64_t bytes) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Peers> copy,
                   MakePeers(from, to, bytes));
  const absl::StatusOr<double> seconds = CheckedSeconds(*copy);
  if (!seconds.ok()) {
    return absl::Status(
        seconds.status().code(),
        absl::StrCat("copying from GPU ", from, " to GPU ", to, ": ",
                     std::string(seconds.status().message())));
  }
  return PeerCopy{.from = from,
                  .to = to,
                  .bytes_per_second = bytes / *seconds,
                  .direct = copy->direct()};
}

}  // namespace

absl::StatusOr<std::unique_ptr<Measurement>> MakePeerCopy(int from, int to,
                                                          int64_t bytes) {
  return MakePeers(from, to, bytes);
}

absl::StatusOr<std::vector<PeerCopy>> MeasurePeerCopies(int64_t bytes) {
  if (bytes < 1)
    return absl::InvalidArgumentError(
        absl::StrCat("a peer copy of ", bytes, " bytes: at least 1 is needed"));
  const int gpus = VisibleGpus();
  if (gpus == 0) return absl::NotFoundError(WhyNoGpu());
  if (gpus == 1)
    return absl::NotFoundError("this process sees one GPU: there is no pair");
  std::vector<PeerCopy> copies;
  for (int from = 0; from < gpus; ++from) {
    for (int to = 0; to < gpus; ++to) {
      if (from == to) continue;
      ASSIGN_OR_RETURN(PeerCopy copy, MeasurePair(from, to, bytes));
      copies.push_back(copy);
    }
  }
  return copies;
}

}  // namespace rankwise::micro
