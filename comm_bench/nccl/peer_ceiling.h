// What the GPUs' links can do, next to which bus bandwidths are shown.
#ifndef RANKWISE_COMM_BENCH_NCCL_PEER_CEILING_H_
#define RANKWISE_COMM_BENCH_NCCL_PEER_CEILING_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "c10/core/Device.h"
#include "comm_bench/cuda/measurements.h"
#include "parallel/comm/control.h"

namespace rankwise::comm_bench {

struct PeerCeiling {
  double bytes_per_second = 0;  // of the slowest pair; 0: not known
  std::string text;  // for a line of facts: the pair, or why there is none
};

// Of copies between all pairs, one at least: "45.2 GB/s from GPU 0 to 3, the
// slowest of 12 pairs, direct".
PeerCeiling DescribePeerCopies(
    const absl::StatusOr<std::vector<micro::PeerCopy>>& copies);

// Rank 0 copies 64 MiB between all GPUs that it sees, while the others wait;
// collective. Empty on a CPU; without a rate where rank 0 sees one GPU, or
// where not all ranks are on this host.
PeerCeiling MeasurePeerCeiling(Control& control, c10::Device device,
                               bool one_host);

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_NCCL_PEER_CEILING_H_
