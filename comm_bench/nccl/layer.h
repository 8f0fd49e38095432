// Through which software a collective's calls go.
#ifndef RANKWISE_COMM_BENCH_NCCL_LAYER_H_
#define RANKWISE_COMM_BENCH_NCCL_LAYER_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "c10/util/intrusive_ptr.h"
#include "comm_bench/collectives/collective.h"
#include "comm_bench/collectives/registered_memory.h"

namespace rankwise::comm_bench {

class Layer {
 public:
  virtual ~Layer() = default;
  virtual std::string name() const = 0;  // "c10d", "nccl"
  virtual int rank() const = 0;          // in the group
  // Starts the call after what the device's current stream has been given, and
  // appends what must be waited for. Throws what a failed call throws.
  virtual void Start(const Collective& collective, const Call& call,
                     Buffers& buffers, Works& works) = 0;
  // For buffers on `device`, on which a call has been made before. Says what is
  // missing where the layer has none.
  virtual absl::StatusOr<std::unique_ptr<RegisteredMemory>> NewRegistered(
      c10::Device device) = 0;
};

// The entries' own calls, over `group`.
std::unique_ptr<Layer> MakeC10dLayer(
    c10::intrusive_ptr<c10d::ProcessGroup> group);

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_NCCL_LAYER_H_
