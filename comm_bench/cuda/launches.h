// What it costs to start work on a GPU, seen by the host and by the GPU.
#ifndef RANKWISE_COMM_BENCH_CUDA_LAUNCHES_H_
#define RANKWISE_COMM_BENCH_CUDA_LAUNCHES_H_

#include <memory>

#include "absl/status/statusor.h"
#include "comm_bench/cuda/measurement.h"

namespace rankwise::micro {

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
absl::StatusOr<std::unique_ptr<Measurement>> MakeLaunch(Launching how,
                                                        LaunchTime what);

}  // namespace rankwise::micro

#endif  // RANKWISE_COMM_BENCH_CUDA_LAUNCHES_H_
