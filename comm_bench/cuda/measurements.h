// Measurements of one GPU: copies between host and GPU, within the GPU and
// between GPUs, sums, and launches. The functions that create measurements
// require CUDA.
#ifndef RANKWISE_COMM_BENCH_CUDA_MEASUREMENTS_H_
#define RANKWISE_COMM_BENCH_CUDA_MEASUREMENTS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace rankwise::micro {

// Not thread-safe. All methods block until done, and throw the exceptions of
// PyTorch and CUDA: c10::OutOfMemoryError if memory is insufficient, c10::Error
// for other errors of the device.
class Measurement {
 public:
  virtual ~Measurement() = default;

  // Overwrites the result of an earlier Run by invalid values.
  virtual void Clear() = 0;
  // Executes the work; returns seconds, by the clock of the measurement.
  virtual double Run() = 0;
  // DataLoss, with the place, if the result of the last Run is wrong. May be
  // called once after each Clear.
  virtual absl::Status Check() = 0;
};

// Executes one uncounted Run (first use: code is loaded, clocks rise) from a
// cleared state, and checks it.
inline absl::Status WarmUpAndCheck(Measurement& measurement) {
  measurement.Clear();
  measurement.Run();
  return measurement.Check();
}

// Direction and host memory of a copy. The GPU accesses pinned memory directly;
// pageable memory is copied through the driver's pinned buffers.
struct HostCopy {
  bool to_gpu = false;
  bool pinned = false;
};

// Returns a copy of `bytes` by cudaMemcpyAsync between the host and the current
// GPU, timed by events. This and the following throw like a Measurement.
std::unique_ptr<Measurement> MakeHostCopy(HostCopy way, int64_t bytes);

enum class GpuCopy { kMemcpy, kKernel };

// Returns a copy of `bytes` within the current GPU, by cudaMemcpyAsync or by
// LaunchCopy (kernels.h), timed by events. Memory traffic is twice `bytes`.
std::unique_ptr<Measurement> MakeGpuCopy(GpuCopy by, int64_t bytes);

enum class SumOf { kFloat, kBfloat16 };

// Returns a sum of the integers in a buffer of `bytes` on the current GPU,
// which has `multiprocessors`; both passes, timed by events. The sum must be
// exact.
std::unique_ptr<Measurement> MakeSum(SumOf what, int64_t bytes,
                                     int multiprocessors);

enum class Launching { kKernels, kGraph };

enum class LaunchTime {
  // Host time per launch, of several successive launches to an idle stream: one
  // kernel each, or a graph of one kernel each. By the host's clock.
  kOfHost,
  // GPU time between the starts of successive kernels that are queued in the
  // stream, or are nodes of one graph. By events.
  kBetweenKernels,
  // Time from the host's launch of one kernel until the host observes its end.
  // By the host's clock.
  kToFinish,
};

// Returns a measurement of launching an empty kernel of one thread on the
// current GPU; Run returns seconds per launch or kernel. Check launches
// counting kernels in the same way, and checks their count.
std::unique_ptr<Measurement> MakeLaunch(Launching how, LaunchTime what);

// Returns a copy of `bytes` by cudaMemcpyPeerAsync in a stream of GPU `from`,
// timed by events. Enables peer access in both directions if possible,
// permanently, like PyTorch's copies. Preserves the current GPU.
std::unique_ptr<Measurement> MakePeerCopy(int from, int to, int64_t bytes);

struct PeerCopy {
  int from = 0, to = 0;  // indices among the visible GPUs
  // Payload in one direction, with no other traffic on the link; median of
  // several copies, timed by events.
  double bytes_per_second = 0;
  // Whether the GPUs access each other's memory (NVLink, or PCIe peer access);
  // otherwise the driver copies through the host's memory.
  bool direct = false;
};

// Measures the links between this process's GPUs, the limit of every collective
// between them: MakePeerCopy between all ordered pairs of the visible GPUs, one
// pair at a time, with a check of the result; releases PyTorch's unused cached
// memory after each. Blocks until done; needs `bytes` free on each GPU, and the
// same again for the check. NotFound with fewer than two GPUs (or in a build
// without CUDA), InvalidArgument for less than one byte, DataLoss for a wrong
// result, Internal if memory is insufficient or CUDA fails.
absl::StatusOr<std::vector<PeerCopy>> MeasurePeerCopies(int64_t bytes);

}  // namespace rankwise::micro

#endif  // RANKWISE_COMM_BENCH_CUDA_MEASUREMENTS_H_
