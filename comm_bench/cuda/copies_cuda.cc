#include <cuda_runtime_api.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "comm_bench/cuda/byte_pattern.h"
#include "comm_bench/cuda/gpu.h"
#include "comm_bench/cuda/measurements.h"
#include "third_party/absl/status_macros.h"

namespace rankwise::micro {
namespace {

bool IsToGpu(HostCopy way) {
  return way == HostCopy::kToGpuPinned || way == HostCopy::kToGpuPageable;
}

bool IsPinned(HostCopy way) {
  return way == HostCopy::kToGpuPinned || way == HostCopy::kToHostPinned;
}

class HostCopyMeasurement : public Measurement {
 public:
  HostCopyMeasurement(HostCopy way, StreamTimer timer, GpuMemory gpu,
                      PinnedMemory pinned, int64_t bytes)
      : way_(way),
        timer_(std::move(timer)),
        gpu_(std::move(gpu)),
        pinned_(std::move(pinned)),
        pageable_(IsPinned(way) ? 0 : bytes),
        host_(IsPinned(way) ? pinned_.get() : pageable_.data(), bytes) {}

  // The pattern where the copy comes from, zeros where it goes.
  absl::Status Clear() override {
    if (IsToGpu(way_)) {
      FillPattern(0, host_);
      return FillGpuMemory(0, Bytes(), gpu_.get());
    }
    std::fill(host_.begin(), host_.end(), 0);
    return UploadPattern(Bytes(), gpu_.get());
  }

  absl::StatusOr<double> Run() override {
    const auto copy = [this] { return Start(); };
    return IsPinned(way_) ? timer_.Time(copy) : timer_.TimeWithHost(copy);
  }

  absl::Status Check() override {
    return IsToGpu(way_) ? CheckPatternOnGpu(gpu_.get(), Bytes())
                         : CheckPattern(0, host_);
  }

 private:
  int64_t Bytes() const { return static_cast<int64_t>(host_.size()); }

  absl::Status Start() {
    const bool to_gpu = IsToGpu(way_);
    return CudaStatus(
        cudaMemcpyAsync(
            to_gpu ? gpu_.get() : host_.data(),
            to_gpu ? host_.data() : gpu_.get(), host_.size(),
            to_gpu ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost,
            timer_.stream()),
        "a copy between host and GPU");
  }

  HostCopy way_;
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
    const absl::Status status = UploadPattern(bytes_, from_.get());
    return status.ok() ? FillGpuMemory(0, bytes_, to_.get()) : status;
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
    RETURN_IF_ERROR(CudaStatus(
        cudaDeviceCanAccessPeer(&can, from, to),
        absl::StrCat("asking whether GPU ", from, " reaches GPU ", to)));
    if (can == 0) return access;
    const CurrentGpu current(from);
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
      RETURN_IF_ERROR(UploadPattern(pair_.bytes, source_.get()));
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

absl::StatusOr<std::unique_ptr<Measurement>> MakeHostCopy(HostCopy way,
                                                          int64_t bytes) {
  ASSIGN_OR_RETURN(StreamTimer timer, StreamTimer::Make());
  ASSIGN_OR_RETURN(GpuMemory gpu, AllocateGpuMemory(bytes));
  ASSIGN_OR_RETURN(PinnedMemory pinned,
                   AllocatePinnedMemory(IsPinned(way) ? bytes : 0));
  return std::make_unique<HostCopyMeasurement>(
      way, std::move(timer), std::move(gpu), std::move(pinned), bytes);
}

absl::StatusOr<std::unique_ptr<Measurement>> MakeGpuCopy(GpuCopy by,
                                                         int64_t bytes) {
  ASSIGN_OR_RETURN(StreamTimer timer, StreamTimer::Make());
  ASSIGN_OR_RETURN(GpuMemory from, AllocateGpuMemory(bytes));
  ASSIGN_OR_RETURN(GpuMemory to, AllocateGpuMemory(bytes));
  return std::make_unique<GpuCopyMeasurement>(
      by, std::move(timer), std::move(from), std::move(to), bytes);
}

absl::StatusOr<std::unique_ptr<PeerCopyMeasurement>> MakePeerCopy(
    int from, int to, int64_t bytes) {
  ASSIGN_OR_RETURN(PeerAccess there, PeerAccess::Enable(from, to));
  ASSIGN_OR_RETURN(PeerAccess back, PeerAccess::Enable(to, from));
  const CurrentGpu current(from);
  ASSIGN_OR_RETURN(StreamTimer timer, StreamTimer::Make());
  ASSIGN_OR_RETURN(GpuMemory source, AllocateOn(from, bytes));
  ASSIGN_OR_RETURN(GpuMemory target, AllocateOn(to, bytes));
  return std::make_unique<Peers>(Pair{from, to, bytes}, std::move(timer),
                                 std::move(there), std::move(back),
                                 std::move(source), std::move(target));
}

}  // namespace rankwise::micro
