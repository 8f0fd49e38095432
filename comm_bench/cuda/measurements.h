// What one GPU is timed at: copies between a host and its GPU, within the GPU
// and between GPUs, sums, and starting work. What makes a measurement is
// compiled with CUDA only.
#ifndef RANKWISE_COMM_BENCH_CUDA_MEASUREMENTS_H_
#define RANKWISE_COMM_BENCH_CUDA_MEASUREMENTS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace rankwise::micro {

// Not thread-safe. All block until done, and throw what PyTorch and CUDA throw:
// c10::OutOfMemoryError where memory is short, c10::Error for other errors of
// the device.
class Measurement {
 public:
  virtual ~Measurement() = default;

  // Overwrites what an earlier Run left with what no correct Run leaves.
  virtual void Clear() = 0;
  // Does it; seconds, by the clock that the measurement is defined with.
  virtual double Run() = 0;
  // DataLoss, with the place, where the last Run left something else than it
  // must. Once after each Clear.
  virtual absl::Status Check() = 0;
};

// One Run that does not count (first use: code is loaded, clocks rise), checked
// from a clear state.
inline absl::Status WarmUpAndCheck(Measurement& measurement) {
  measurement.Clear();
  measurement.Run();
  return measurement.Check();
}

// Where a copy goes; pinned memory the GPU reads and writes by itself, pageable
// memory goes through the driver's own pinned pieces.
struct HostCopy {
  bool to_gpu = false;
  bool pinned = false;
};

// A copy of `bytes` by cudaMemcpyAsync between the host and the current GPU,
// timed by events. This and the following throw as a Measurement does.
std::unique_ptr<Measurement> MakeHostCopy(HostCopy way, int64_t bytes);

enum class GpuCopy { kMemcpy, kKernel };

// A copy of `bytes` within the current GPU, by cudaMemcpyAsync or by
// LaunchCopy (kernels.h), timed by events. The memory moves twice as much.
std::unique_ptr<Measurement> MakeGpuCopy(GpuCopy by, int64_t bytes);

enum class SumOf { kFloat, kBfloat16 };

// Of as many whole numbers as are in `bytes`, on the current GPU, which has
// `multiprocessors`; both passes, timed by events. The sum must be exact.
std::unique_ptr<Measurement> MakeSum(SumOf what, int64_t bytes,
                                     int multiprocessors);

enum class Launching { kKernels, kGraph };

enum class LaunchTime {
  // Of the host, for one launch of several given in a row to an idle stream: a
  // kernel each, or a graph of one kernel each. By the host's clock.
  kOfHost,
  // Of the GPU, from one kernel's start to the next's: kernels that wait in the
  // stream, or the nodes of one graph. By events.
  kBetweenKernels,
  // From the host's launch of one kernel until the host knows that it is done.
  // By the host's clock.
  kToFinish,
};

// Of a kernel of one thread that does nothing, on the current GPU; Run gives
// seconds per launch or kernel. Check starts the same kernels in the same way,
// but counting, and counts them.
std::unique_ptr<Measurement> MakeLaunch(Launching how, LaunchTime what);

// Of `bytes` by cudaMemcpyPeerAsync in a stream of GPU `from`, timed by events.
// Peer access both ways is enabled where possible, and stays so, as after
// PyTorch's own copies. Leaves the current GPU as it was.
std::unique_ptr<Measurement> MakePeerCopy(int from, int to, int64_t bytes);

struct PeerCopy {
  int from = 0, to = 0;  // indices among the visible GPUs
  // Of payload, in one direction, with nothing else on the link; the median of
  // several copies, timed by events.
  double bytes_per_second = 0;
  // Whether the GPUs reach each other's memory (NVLink, or PCIe peer access);
  // else the driver goes through the host's memory.
  bool direct = false;
};

// What the links between this process's GPUs can do: the ceiling of every
// collective between them. MakePeerCopy between all ordered pairs of the
// visible GPUs, one pair at a time, with a check of what arrived; memory that
// PyTorch caches unused is released after each. Blocks until done;
// needs `bytes` free on each GPU, and as much again where it checks. NotFound
// with fewer than two GPUs (or in a build without CUDA), InvalidArgument for
// less than one byte, DataLoss for a copy that arrived wrong, Internal where
// memory is short or CUDA fails.
absl::StatusOr<std::vector<PeerCopy>> MeasurePeerCopies(int64_t bytes);

}  // namespace rankwise::micro

#endif  // RANKWISE_COMM_BENCH_CUDA_MEASUREMENTS_H_
