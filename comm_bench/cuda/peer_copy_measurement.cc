#include "comm_bench/cuda/peer_copy_measurement.h"

#include <cuda_runtime_api.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "comm_bench/cuda/cuda_status.h"
#include "comm_bench/cuda/gpu_memory.h"
#include "comm_bench/cuda/stream_timer.h"

namespace rankwise::micro {
namespace {

// Makes a GPU the current one for a while. Of an index that is there, this
// cannot fail in a way that the next call would not tell.
class CurrentGpu {
 public:
  explicit CurrentGpu(int index) {
    (void)cudaGetDevice(&before_);
    (void)cudaSetDevice(index);
  }
  ~CurrentGpu() { (void)cudaSetDevice(before_); }
  CurrentGpu(const CurrentGpu&) = delete;
  CurrentGpu& operator=(const CurrentGpu&) = delete;

 private:
  int before_ = 0;
};

// Lets GPU `from` reach the memory of GPU `to`, where it can.
class PeerAccess {
 public:
  static absl::StatusOr<PeerAccess> Enable(int from, int to) {
    PeerAccess access(from, to);
    int can = 0;
    const absl::Status asked = CudaStatus(
        cudaDeviceCanAccessPeer(&can, from, to),
        absl::StrCat("asking whether GPU ", from, " reaches GPU ", to));
    if (!asked.ok()) return asked;
    if (can == 0) return access;
    const CurrentGpu current(from);
    const cudaError_t error = cudaDeviceEnablePeerAccess(to, 0);
    access.possible_ = true;
    access.enabled_here_ = error == cudaSuccess;
    if (error == cudaErrorPeerAccessAlreadyEnabled) {
      (void)cudaGetLastError();
      return access;
    }
    const absl::Status enabled = CudaStatus(
        error, absl::StrCat("letting GPU ", from, " reach GPU ", to));
    if (!enabled.ok()) return enabled;
    return access;
  }

  ~PeerAccess() {
    if (!enabled_here_) return;
    const CurrentGpu current(from_);
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
  const CurrentGpu current(gpu);
  absl::StatusOr<GpuMemory> memory = AllocateGpuMemory(bytes);
  if (memory.ok()) return memory;
  return absl::Status(
      memory.status().code(),
      absl::StrCat("GPU ", gpu, ": ", std::string(memory.status().message())));
}

struct Pair {
  int from = 0, to = 0;
  int64_t bytes = 0;
};

class Peers : public PeerCopyMeasurement {
 public:
  Peers(Pair pair, StreamTimer timer, PeerAccess there, PeerAccess back,
        GpuMemory source, GpuMemory target)
      : pair_(pair),
        there_(std::move(there)),
        back_(std::move(back)),
        timer_(std::move(timer)),
        source_(std::move(source)),
        target_(std::move(target)) {}

  bool direct() const override { return there_.possible() && back_.possible(); }

  absl::Status Clear() override {
    {
      const CurrentGpu current(pair_.from);
      const absl::Status status = UploadPattern(pair_.bytes, source_.get());
      if (!status.ok()) return status;
    }
    const CurrentGpu current(pair_.to);
    return FillGpuMemory(0, pair_.bytes, target_.get());
  }

  absl::StatusOr<double> Run() override {
    const CurrentGpu current(pair_.from);
    // A copy through the host's memory needs the host.
    const auto copy = [this] { return Start(); };
    return direct() ? timer_.Time(copy) : timer_.TimeWithHost(copy);
  }

  absl::Status Check() override {
    const CurrentGpu current(pair_.to);
    return CheckPatternOnGpu(target_.get(), pair_.bytes);
  }

 private:
  absl::Status Start() {
    return CudaStatus(
        cudaMemcpyPeerAsync(target_.get(), pair_.to, source_.get(), pair_.from,
                            pair_.bytes, timer_.stream()),
        absl::StrCat("a copy from GPU ", pair_.from, " to GPU ", pair_.to));
  }

  Pair pair_;
  PeerAccess there_, back_;
  StreamTimer timer_;
  GpuMemory source_, target_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<PeerCopyMeasurement>> MakePeerCopy(
    int from, int to, int64_t bytes) {
  absl::StatusOr<PeerAccess> there = PeerAccess::Enable(from, to);
  if (!there.ok()) return there.status();
  absl::StatusOr<PeerAccess> back = PeerAccess::Enable(to, from);
  if (!back.ok()) return back.status();
  const CurrentGpu current(from);
  absl::StatusOr<StreamTimer> timer = StreamTimer::Make();
  if (!timer.ok()) return timer.status();
  absl::StatusOr<GpuMemory> source = AllocateOn(from, bytes);
  if (!source.ok()) return source.status();
  absl::StatusOr<GpuMemory> target = AllocateOn(to, bytes);
  if (!target.ok()) return target.status();
  return std::make_unique<Peers>(Pair{from, to, bytes}, *std::move(timer),
                                 *std::move(there), *std::move(back),
                                 *std::move(source), *std::move(target));
}

}  // namespace rankwise::micro
