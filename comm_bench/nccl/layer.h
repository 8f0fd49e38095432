// Through which software a collective's calls go: PyTorch's process group, or
// nccl.h itself.
#ifndef RANKWISE_COMM_BENCH_NCCL_LAYER_H_
#define RANKWISE_COMM_BENCH_NCCL_LAYER_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "c10/core/Device.h"
#include "c10/util/intrusive_ptr.h"
#include "comm_bench/collectives/collective.h"
#include "comm_bench/nccl/raw_nccl.h"
#include "parallel/comm/control.h"

namespace rankwise::comm_bench {

class Layer {
 public:
  virtual ~Layer() = default;
  virtual std::string name() const = 0;  // "c10d", "nccl"
  virtual int rank() const = 0;          // in the group
  // What starts the call after what the device's current stream has been given,
  // and appends what must be waited for. Throws what a failed call throws. Used
  // no longer than the layer, `collective` and `call`.
  using Start = std::function<void(Buffers& buffers, Works& works)>;
  virtual Start Prepare(const Collective& collective, const Call& call) = 0;
  // For buffers on `device`, on which a call has been made before. Says what is
  // missing where the layer has none.
  virtual absl::StatusOr<std::unique_ptr<RegisteredMemory>> NewRegistered(
      c10::Device device) = 0;
};

// The entries' own calls, over `group`.
std::unique_ptr<Layer> MakeC10dLayer(
    c10::intrusive_ptr<c10d::ProcessGroup> group);

// A communicator of its own. Collective over all ranks of `control`; `ranks`
// are those of this rank's group (empty: all), and groups have no rank in
// common. All ranks fail where a group's first rank cannot make an id.
absl::StatusOr<std::unique_ptr<RawNccl>> ConnectRawNccl(
    Control& control, const std::vector<int>& ranks, c10::Device device);

// Over such a communicator; for collectives that have calls of nccl.h.
std::unique_ptr<Layer> MakeNcclLayer(std::unique_ptr<RawNccl> nccl, int rank);

// The id of this rank's group, made by `make` on the group's first rank and
// handed to the others.
absl::StatusOr<std::string> ShareNcclId(
    Control& control, const std::vector<int>& ranks,
    const std::function<absl::StatusOr<std::string>()>& make);

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_NCCL_LAYER_H_
