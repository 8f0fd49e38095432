// Collectives by nccl.h itself.
#ifndef RANKWISE_COMM_BENCH_NCCL_NCCL_LAYER_H_
#define RANKWISE_COMM_BENCH_NCCL_NCCL_LAYER_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "c10/core/Device.h"
#include "comm_bench/nccl/layer.h"
#include "comm_bench/nccl/raw_nccl.h"
#include "parallel/comm/control.h"

namespace rankwise::comm_bench {

// A communicator of its own. Collective over all ranks of `control`; `ranks`
// are those of this rank's group (empty: all), and groups have no rank in
// common. All ranks fail where a group's first rank cannot make an id.
absl::StatusOr<std::unique_ptr<RawNccl>> ConnectRawNccl(
    Control& control, const std::vector<int>& ranks, c10::Device device);

// Over such a communicator. What nccl.h has no calls for throws (see
// CheckNcclCalls).
std::unique_ptr<Layer> MakeNcclLayer(std::unique_ptr<RawNccl> nccl, int rank);

// The id of this rank's group, made by `make` on the group's first rank and
// handed to the others.
absl::StatusOr<std::string> ShareNcclId(
    Control& control, const std::vector<int>& ranks,
    const std::function<absl::StatusOr<std::string>()>& make);

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_NCCL_NCCL_LAYER_H_
