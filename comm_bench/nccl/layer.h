// Through which software a collective's calls go, PyTorch's process group,
// nccl.h or mpi.h itself, and the calls of one row of the benchmark.
#ifndef RANKWISE_COMM_BENCH_NCCL_LAYER_H_
#define RANKWISE_COMM_BENCH_NCCL_LAYER_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "c10/core/Device.h"
#include "c10/util/intrusive_ptr.h"
#include "comm_bench/collectives/collective.h"
#include "parallel/comm/control.h"
#include "parallel/device/graph.h"

namespace rankwise::comm_bench {

class Layer {
 public:
  virtual ~Layer() = default;
  // "c10d", "nccl", "mpi", "hierarchical"
  virtual std::string name() const = 0;
  virtual int rank() const = 0;  // in the group
  // What starts the call after what the device's current stream has been given,
  // and appends what must be waited for. Throws what a failed call throws. Used
  // no longer than the layer and `collective`.
  using Start = std::function<void(Buffers& buffers, Works& works)>;
  virtual Start Prepare(const Collective& collective, const Call& call) = 0;
  // For buffers on `device`, on which a call has been made before. Says what is
  // missing where the layer has none.
  virtual absl::StatusOr<std::unique_ptr<RegisteredMemory>> NewRegistered(
      c10::Device device) = 0;
};

// The entries' own calls, over `group`. `name`: the layer's.
std::unique_ptr<Layer> MakeC10dLayer(
    c10::intrusive_ptr<c10d::ProcessGroup> group, std::string name = "c10d");

// Over a communicator of nccl.h of its own, without PyTorch's process group;
// for collectives that have calls of nccl.h, used by one thread. Collective
// over all ranks of `control`, which all fail where one does; `ranks` are those
// of this rank's group (empty: all), and groups have no rank in common. Errors
// are what ncclGetErrorString and ncclGetLastError say, and the call that
// failed; calls throw them as c10::Error. A peer that dies is not noticed: what
// waits for the device then waits until somebody ends the process, as the
// launcher does. Each registered tensor is an ncclMemAlloc of its own,
// registered with the communicator as long as it lives. Unimplemented in a
// build without CUDA.
absl::StatusOr<std::unique_ptr<Layer>> ConnectNcclLayer(
    Control& control, const std::vector<int>& ranks, c10::Device device);

// Over a communicator of mpi.h of its own, by MPI's blocking calls, for the
// ranks of --backend=mpi: the calls of nccl.h have counterparts of the same
// meaning. Collective as the one above; used by one thread while no collective
// of the backend is in flight. FailedPrecondition under another backend,
// Unimplemented in a build without OpenMPI.
absl::StatusOr<std::unique_ptr<Layer>> ConnectMpiLayer(
    Control& control, const std::vector<int>& ranks);

// The id of this rank's group, made by `make` on the group's first rank and
// handed to the others. All ranks fail where a first rank cannot make one.
absl::StatusOr<std::string> ShareNcclId(
    Control& control, const std::vector<int>& ranks,
    const std::function<absl::StatusOr<std::string>()>& make);

// A memory pool over ProcessGroupNCCL's allocator (ncclMemAlloc), which
// registerMemPool has made known to `group`'s communicator; what is allocated
// from it later is registered as it is made. `group` outlives it.
// Unimplemented in a build without CUDA; InvalidArgument for another backend;
// FailedPrecondition before the group's first call, or where this GPU cannot
// allocate for NCCL.
absl::StatusOr<std::unique_ptr<RegisteredMemory>> RegisteredWithC10d(
    c10d::ProcessGroup& group, c10::Device device);

// MakeDeviceGraph, or a test's.
using GraphMaker =
    std::function<absl::StatusOr<std::unique_ptr<DeviceGraph>>(c10::Device)>;

// The calls of one row, on buffers of their own; one rank's, used by one
// thread. Throws what a failed call throws.
class Calls {
 public:
  // Rounds of calls that a timed graph holds.
  static constexpr int kGraphRounds = 20;

  // `in_flight` calls, each with buffers of its own: from `memory`, if it is
  // not null. What is passed by reference, but for `call`, outlives them.
  Calls(Layer& layer, const Collective& collective, const Call& call,
        int in_flight, RegisteredMemory* memory = nullptr);

  void Fill();

  // Records the calls, once for Run and kGraphRounds times for RunRounds; both
  // replay them from now on. The calls must have been made before:
  // libraries set up at the first call what cannot be recorded. Returns the
  // graph's own error, or Unimplemented.
  absl::Status Capture(const GraphMaker& make);

  // All calls once. Blocks until their results are in place.
  void Run();

  // All calls rounds() times. Blocks until the results are in place.
  void RunRounds();
  int rounds() const { return many_ == nullptr ? 1 : kGraphRounds; }
  // RunRounds; returns the seconds between two events in the device's current
  // stream, just before the calls and just after them.
  double TimeRounds();

  // The first wrong element; `total` counts those of all buffers. After Fill
  // and one Run.
  std::optional<WrongElement> Check() const;

 private:
  void Launch();
  // Launch without a graph.
  void Replay(DeviceGraph* graph);

  const Collective& collective_;
  const Call call_;
  const Layer::Start start_;
  std::vector<Buffers> buffers_;
  Works works_;
  std::unique_ptr<DeviceGraph> one_, many_;  // null: not captured
};

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_NCCL_LAYER_H_
