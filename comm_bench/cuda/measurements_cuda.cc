#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <limits>
#include <optional>
#include <string>

#include "ATen/core/Tensor.h"
#include "ATen/cuda/PeerToPeerAccess.h"
#include "ATen/ops/empty.h"
#include "ATen/ops/zeros.h"
#include "absl/strings/str_cat.h"
#include "c10/core/Event.h"
#include "c10/cuda/CUDACachingAllocator.h"
#include "c10/cuda/CUDAGuard.h"
#include "c10/cuda/CUDAStream.h"
#include "c10/util/Exception.h"
#include "comm_bench/collectives/pattern.h"
#include "comm_bench/cuda/kernels.h"
#include "comm_bench/cuda/measurements.h"
#include "parallel/comm/diagnosis/plain_error.h"
#include "parallel/device/device_event.h"
#include "parallel/device/device_facts.h"
#include "third_party/absl/status_macros.h"

namespace rankwise::micro {
namespace {

using comm_bench::WrongElement;

// `doing` completes "... failed": "copying 8 bytes to GPU 1". Clears CUDA's
// last error.
void ThrowOn(cudaError_t error, absl::string_view doing) {
  if (error == cudaSuccess) return;
  (void)cudaGetLastError();
  TORCH_CHECK(false, doing, " failed: ", cudaGetErrorString(error), " (",
              cudaGetErrorName(error), ")");
}

c10::Device Gpu(int index) {
  return c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(index));
}

at::Tensor NewBytes(int64_t bytes, at::TensorOptions where) {
  return at::empty({bytes}, where.dtype(at::kByte));
}

uint8_t* Bytes(const at::Tensor& tensor) { return tensor.data_ptr<uint8_t>(); }

// Prepares the buffers of a copy: the pattern in the source, none of it in the
// target. Both are visible to all streams of their devices on return.
void ClearCopy(const at::Tensor& from, const at::Tensor& to) {
  comm_bench::Fill(from, {{from.numel(), 0, comm_bench::DataOf(0)}});
  comm_bench::FillUnwritten(to);
  for (const at::Tensor& end : {from, to}) SynchronizeDevice(end.device());
}

absl::Status CheckCopy(const at::Tensor& to) {
  const std::optional<WrongElement> wrong =
      comm_bench::FindWrong(to, {{to.numel(), 0, comm_bench::DataOf(0)}});
  if (!wrong.has_value()) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(
      "byte ", wrong->index, " is ", wrong->got, " and not ", wrong->expected));
}

// A new stream on the GPU that was current at construction and must be current
// in every call.
class StreamTimer {
 public:
  CudaStream stream() const { return stream_.stream(); }

  // Returns the time in seconds from the stream's start of the work enqueued by
  // `work` to its end. The stream is held until the host has enqueued
  // everything, to exclude host time; a long interruption of the host can make
  // the result longer, never shorter. Blocks until done.
  double Time(const std::function<void()>& work) {
    constexpr int64_t kLongestHoldCycles = 10'000'000, kGrowth = 10;
    while (true) {
      LaunchHold(hold_cycles_, stream());
      bool too_late = false;
      const double seconds = TimeWithHost([&] {
        work();
        too_late = start_.query();
      });
      if (!too_late || hold_cycles_ >= kLongestHoldCycles) return seconds;
      hold_cycles_ *= kGrowth;
    }
  }

  // Time() without holding the stream, for work that involves the host.
  double TimeWithHost(const std::function<void()>& work) {
    constexpr double kMillisecond = 1e-3;
    start_.record(stream_);
    work();
    end_.record(stream_);
    Finish();
    return start_.elapsedTime(end_) * kMillisecond;
  }

  // Blocks until the stream is idle.
  void Finish() {
    ThrowOn(cudaStreamSynchronize(stream()), "the GPU's work");
    ThrowOn(cudaGetLastError(), "starting work on the GPU");
  }

 private:
  const c10::cuda::CUDAStream stream_ = c10::cuda::getStreamFromPool();
  c10::Event start_{c10::kCUDA, c10::EventFlag::BACKEND_DEFAULT};
  c10::Event end_{c10::kCUDA, c10::EventFlag::BACKEND_DEFAULT};
  int64_t hold_cycles_ = 100'000;  // about 50 us
};

struct HostCopyMeasurement : Measurement {
  HostCopyMeasurement(HostCopy way, int64_t bytes)
      : copy(way),
        gpu(NewBytes(bytes, c10::kCUDA)),
        host(NewBytes(
            bytes, at::TensorOptions(c10::kCPU).pinned_memory(way.pinned))) {}

  void Clear() override { ClearCopy(From(), To()); }

  double Run() override {
    const auto start = [this] {
      ThrowOn(cudaMemcpyAsync(
                  Bytes(To()), Bytes(From()), host.numel(),
                  copy.to_gpu ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost,
                  timer.stream()),
              "a copy between host and GPU");
    };
    return copy.pinned ? timer.Time(start) : timer.TimeWithHost(start);
  }

  absl::Status Check() override { return CheckCopy(To()); }

  const at::Tensor& From() const { return copy.to_gpu ? host : gpu; }
  const at::Tensor& To() const { return copy.to_gpu ? gpu : host; }

  const HostCopy copy;
  const at::Tensor gpu, host;
  StreamTimer timer;
};

struct GpuCopyMeasurement : Measurement {
  GpuCopyMeasurement(GpuCopy by, int64_t bytes)
      : by(by),
        from(NewBytes(bytes, c10::kCUDA)),
        to(NewBytes(bytes, c10::kCUDA)) {}

  void Clear() override { ClearCopy(from, to); }

  double Run() override {
    return timer.Time([this] {
      if (by == GpuCopy::kMemcpy) {
        ThrowOn(cudaMemcpyAsync(Bytes(to), Bytes(from), to.numel(),
                                cudaMemcpyDeviceToDevice, timer.stream()),
                "a copy within the GPU");
      } else {
        LaunchCopy(Bytes(from), Bytes(to), to.numel(), timer.stream());
        ThrowOn(cudaGetLastError(), "starting the copy kernel");
      }
    });
  }

  absl::Status Check() override { return CheckCopy(to); }

  const GpuCopy by;
  const at::Tensor from, to;
  StreamTimer timer;
};

struct SumMeasurement : Measurement {
  SumMeasurement(c10::ScalarType dtype, int64_t count, int blocks)
      : blocks(blocks),
        values(at::empty({count}, at::device(c10::kCUDA).dtype(dtype))),
        results(at::empty({blocks + 1}, at::device(c10::kCUDA))) {}

  // Random integers from -2 to 2: partial sums stay below 2^24, so that float
  // is exact in any order.
  void Clear() override {
    values.random_(-2, 3);
    results.fill_(std::numeric_limits<float>::quiet_NaN());
    SynchronizeDevice(values.device());
  }

  double Run() override {
    return timer.Time([this] {
      auto* const sum = results.data_ptr<float>();
      float* const scratch = sum + 1;
      if (values.scalar_type() == at::kFloat) {
        LaunchSum(values.data_ptr<float>(), values.numel(), blocks, scratch,
                  sum, timer.stream());
      } else {
        LaunchSumOfBfloat16(static_cast<const uint16_t*>(values.data_ptr()),
                            values.numel(), blocks, scratch, sum,
                            timer.stream());
      }
      ThrowOn(cudaGetLastError(), "starting the sum");
    });
  }

  // Compares with PyTorch's sum.
  absl::Status Check() override {
    const auto sum = results[0].item<float>();
    const auto expected = values.sum(at::kFloat).item<float>();
    if (sum == expected) return absl::OkStatus();
    return absl::DataLossError(absl::StrCat("the sum of ", values.numel(),
                                            " values is ", sum, " and not ",
                                            expected));
  }

  const int blocks;
  const at::Tensor values;
  const at::Tensor results;  // the sum, followed by scratch space
  StreamTimer timer;
};

struct DestroyGraph {
  void operator()(CUgraphExec_st* graph) const {
    (void)cudaGraphExecDestroy(graph);
  }
};
using Graph = std::unique_ptr<CUgraphExec_st, DestroyGraph>;

// Captures `kernels` successive ticks. Does not use PyTorch's graph, whose
// launch also sets up random numbers.
Graph Record(int kernels, int32_t* count, CudaStream stream) {
  ThrowOn(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
          "beginning a graph");
  for (int i = 0; i < kernels; ++i) LaunchTick(count, stream);
  cudaGraph_t recorded = nullptr;
  ThrowOn(cudaStreamEndCapture(stream, &recorded), "ending a graph");
  cudaGraphExec_t graph = nullptr;
  const cudaError_t error = cudaGraphInstantiate(&graph, recorded, 0);
  (void)cudaGraphDestroy(recorded);
  ThrowOn(error, "instantiating a graph");
  return Graph(graph);
}

struct LaunchMeasurement : Measurement {
  LaunchMeasurement(Launching how, LaunchTime what) : what(what) {
    constexpr int kMany = 256;  // below the stream's blocking limit
    const bool one_graph =
        what == LaunchTime::kBetweenKernels && how == Launching::kGraph;
    if (one_graph) {
      kernels_of_launch = kMany;
    } else if (what != LaunchTime::kToFinish) {
      launches = kMany;
    }
    if (how == Launching::kKernels) return;
    // Loads the kernel, which is not permitted during capture.
    LaunchTick(nullptr, timer.stream());
    timer.Finish();
    idle = Record(kernels_of_launch, nullptr, timer.stream());
    counting =
        Record(kernels_of_launch, count.data_ptr<int32_t>(), timer.stream());
  }

  void Clear() override {
    count.zero_();
    SynchronizeDevice(count.device());
  }

  double Run() override {
    const double seconds =
        what == LaunchTime::kBetweenKernels
            ? timer.Time([this] { Launch(idle.get(), nullptr); })
            : HostSeconds();
    return seconds / kernels();
  }

  absl::Status Check() override {
    Launch(counting.get(), count.data_ptr<int32_t>());
    timer.Finish();
    const auto counted = count.item<int32_t>();
    if (counted == kernels()) return absl::OkStatus();
    return absl::DataLossError(
        absl::StrCat(counted, " kernels ran and not ", kernels()));
  }

  // Launches `graph`, or single kernels if it is nullptr.
  void Launch(CUgraphExec_st* graph, int32_t* target) {
    for (int i = 0; i < launches; ++i) {
      if (graph == nullptr) LaunchTick(target, timer.stream());
      ThrowOn(graph != nullptr ? cudaGraphLaunch(graph, timer.stream())
                               : cudaGetLastError(),
              "a launch");
    }
  }

  double HostSeconds() {
    using Clock = std::chrono::steady_clock;
    const Clock::time_point start = Clock::now();
    Launch(idle.get(), nullptr);
    Clock::time_point end = Clock::now();
    timer.Finish();
    if (what == LaunchTime::kToFinish) end = Clock::now();
    return std::chrono::duration<double>(end - start).count();
  }

  int kernels() const { return launches * kernels_of_launch; }

  const LaunchTime what;
  int launches = 1, kernels_of_launch = 1;
  const at::Tensor count =
      at::zeros({1}, at::device(c10::kCUDA).dtype(at::kInt));
  StreamTimer timer;
  Graph idle, counting;  // nullptr for kernels
};

struct PeerCopyMeasurement : Measurement {
  // GPU `from` must be current.
  PeerCopyMeasurement(int from, int to, int64_t bytes)
      : source(NewBytes(bytes, Gpu(from))), target(NewBytes(bytes, Gpu(to))) {
    // Not short-circuited: each call enables access in its direction.
    const bool there = at::cuda::get_p2p_access(from, to);
    const bool back = at::cuda::get_p2p_access(to, from);
    direct = there && back;
  }

  void Clear() override { ClearCopy(source, target); }

  double Run() override {
    const c10::cuda::CUDAGuard current(source.device());
    const auto copy = [this] {
      const int from = source.device().index(), to = target.device().index();
      ThrowOn(cudaMemcpyPeerAsync(Bytes(target), to, Bytes(source), from,
                                  source.numel(), timer.stream()),
              absl::StrCat("a copy from GPU ", from, " to GPU ", to));
    };
    // A copy through the host's memory involves the host.
    return direct ? timer.Time(copy) : timer.TimeWithHost(copy);
  }

  absl::Status Check() override { return CheckCopy(target); }

  const at::Tensor source, target;
  StreamTimer timer;
  bool direct = false;  // whether the GPUs access each other's memory
};

std::unique_ptr<PeerCopyMeasurement> MakePeers(int from, int to,
                                               int64_t bytes) {
  const c10::cuda::CUDAGuard current(Gpu(from));
  return std::make_unique<PeerCopyMeasurement>(from, to, bytes);
}

// Returns the median of several copies, with checks before and after: the timed
// copies also write to cleared memory.
absl::StatusOr<PeerCopy> MeasurePair(int from, int to, int64_t bytes) {
  constexpr int kRepetitions = 7;
  const auto copy = MakePeers(from, to, bytes);
  RETURN_IF_ERROR(WarmUpAndCheck(*copy));
  copy->Clear();
  std::array<double, kRepetitions> seconds = {};
  for (double& each : seconds) each = copy->Run();
  RETURN_IF_ERROR(copy->Check());
  std::sort(seconds.begin(), seconds.end());
  return PeerCopy{.from = from,
                  .to = to,
                  .bytes_per_second = bytes / seconds[kRepetitions / 2],
                  .direct = copy->direct};
}

}  // namespace

std::unique_ptr<Measurement> MakeHostCopy(HostCopy copy, int64_t bytes) {
  return std::make_unique<HostCopyMeasurement>(copy, bytes);
}

std::unique_ptr<Measurement> MakeGpuCopy(GpuCopy by, int64_t bytes) {
  return std::make_unique<GpuCopyMeasurement>(by, bytes);
}

std::unique_ptr<Measurement> MakeSum(SumOf what, int64_t bytes,
                                     int multiprocessors) {
  const auto dtype = what == SumOf::kFloat ? at::kFloat : at::kBFloat16;
  return std::make_unique<SumMeasurement>(
      dtype, bytes / static_cast<int64_t>(c10::elementSize(dtype)),
      SumBlocks(multiprocessors));
}

std::unique_ptr<Measurement> MakeLaunch(Launching how, LaunchTime what) {
  return std::make_unique<LaunchMeasurement>(how, what);
}

std::unique_ptr<Measurement> MakePeerCopy(int from, int to, int64_t bytes) {
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
      absl::StatusOr<PeerCopy> copy;
      try {
        copy = MeasurePair(from, to, bytes);
      } catch (const std::exception& error) {
        copy = absl::InternalError(PlainMessage(error));
      }
      c10::cuda::CUDACachingAllocator::emptyCache();
      if (!copy.ok()) {
        return absl::Status(copy.status().code(),
                            absl::StrCat("copying from GPU ", from, " to GPU ",
                                         to, ": ", copy.status().message()));
      }
      copies.push_back(*copy);
    }
  }
  return copies;
}

}  // namespace rankwise::micro
