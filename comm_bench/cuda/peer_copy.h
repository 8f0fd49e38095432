// What the links between this process's GPUs can do: the ceiling of every
// collective between them.
#ifndef RANKWISE_COMM_BENCH_CUDA_PEER_COPY_H_
#define RANKWISE_COMM_BENCH_CUDA_PEER_COPY_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"

namespace rankwise::micro {

struct PeerCopy {
  int from = 0, to = 0;  // indices among the visible GPUs
  // Of payload, in one direction, with nothing else on the link; the median of
  // several copies, timed by events.
  double bytes_per_second = 0;
  // Whether the GPUs reach each other's memory (NVLink, or PCIe peer access);
  // else the driver goes through the host's memory.
  bool direct = false;
};

// Copies `bytes` by cudaMemcpyPeerAsync between all ordered pairs of the GPUs
// that this process sees, one pair at a time, and checks what arrived. Peer
// access is enabled where it is possible, and disabled again where it was not
// before. Blocks until done; needs `bytes` free on each GPU.
// NotFound where there are no two GPUs, InvalidArgument for fewer bytes than
// one, ResourceExhausted where memory is short, DataLoss for a copy that
// arrived wrong, Internal for other errors of CUDA.
absl::StatusOr<std::vector<PeerCopy>> MeasurePeerCopies(int64_t bytes);

}  // namespace rankwise::micro

#endif  // RANKWISE_COMM_BENCH_CUDA_PEER_COPY_H_
