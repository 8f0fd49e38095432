// The rate of the GPUs' links, shown next to bus bandwidths.
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
  double bytes_per_second = 0;  // of the slowest pair; 0 if unknown
  std::string text;  // for a line of facts: the pair, or why there is no rate
};

// Describes copies between all pairs, at least one: "45.2 GB/s from GPU 0 to 3,
// the slowest of 12 pairs, direct".
PeerCeiling DescribePeerCopies(
    const absl::StatusOr<std::vector<micro::PeerCopy>>& copies);

// Rank 0 copies 64 MiB between all GPUs visible to it, while the others wait;
// collective. Empty on a CPU; without a rate if rank 0 has one GPU, or if the
// ranks are on several hosts.
PeerCeiling MeasurePeerCeiling(Control& control, c10::Device device,
                               bool one_host);

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_NCCL_PEER_CEILING_H_
