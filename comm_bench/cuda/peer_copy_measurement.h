// One copy from one GPU to another.
#ifndef RANKWISE_COMM_BENCH_CUDA_PEER_COPY_MEASUREMENT_H_
#define RANKWISE_COMM_BENCH_CUDA_PEER_COPY_MEASUREMENT_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "comm_bench/cuda/measurement.h"

namespace rankwise::micro {

class PeerCopyMeasurement : public Measurement {
 public:
  // Whether the GPUs reach each other's memory.
  virtual bool direct() const = 0;
};

// Of `bytes` by cudaMemcpyPeerAsync in a stream of GPU `from`, timed by events.
// Peer access both ways is enabled where possible, for as long as the
// measurement lives. Leaves the current GPU as it was.
absl::StatusOr<std::unique_ptr<PeerCopyMeasurement>> MakePeerCopy(
    int from, int to, int64_t bytes);

}  // namespace rankwise::micro

#endif  // RANKWISE_COMM_BENCH_CUDA_PEER_COPY_MEASUREMENT_H_
