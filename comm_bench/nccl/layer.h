// The software layer of a collective's calls (PyTorch's process group, nccl.h
// or mpi.h), and the calls of one row of the benchmark.
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
  // Returns "c10d", "nccl", "mpi", "hierarchical".
  virtual std::string name() const = 0;
  virtual int rank() const = 0;  // in the group
  // Starts the call after the work in the device's current stream, and appends
  // the works to wait for. Throws the exceptions of failed calls. The layer and
  // `collective` must outlive it.
  using Start = std::function<void(Buffers& buffers, Works& works)>;
  virtual Start Prepare(const Collective& collective, const Call& call) = 0;
  // Returns registered memory for buffers on `device`, on which a call has been
  // made before. The error names the missing requirement.
  virtual absl::StatusOr<std::unique_ptr<RegisteredMemory>> NewRegistered(
      c10::Device device) = 0;
};

// Makes the entries' own calls over `group`. `name` is the layer's.
std::unique_ptr<Layer> MakeC10dLayer(
    c10::intrusive_ptr<c10d::ProcessGroup> group, std::string name = "c10d");

// Uses its own communicator of nccl.h, without PyTorch's process group;
// supports collectives with calls of nccl.h, used by one thread. Collective
// over all ranks of `control`, which all fail if one does; `ranks` are those of
// this rank's group (empty if all), and groups are disjoint. Errors contain
// the failed call and the texts of ncclGetErrorString and ncclGetLastError;
// calls throw them as c10::Error. A dead peer is not detected: waits for the
// device then block until the process is ended, for example by the launcher.
// Each registered tensor is a separate ncclMemAlloc, registered with the
// communicator during its lifetime. Unimplemented in a build without CUDA.
absl::StatusOr<std::unique_ptr<Layer>> ConnectNcclLayer(
    Control& control, const std::vector<int>& ranks, c10::Device device);

// Uses its own communicator of mpi.h and MPI's blocking calls, for the ranks of
// --backend=mpi: the calls of nccl.h have equivalents. Collective like
// ConnectNcclLayer; used by one thread while no collective of the backend is in
// flight. FailedPrecondition with another backend, Unimplemented in a build
// without OpenMPI.
absl::StatusOr<std::unique_ptr<Layer>> ConnectMpiLayer(
    Control& control, const std::vector<int>& ranks);

// Returns the id of this rank's group, created by `make` on the group's first
// rank and broadcast to the others. All ranks fail if a first rank cannot
// create one.
absl::StatusOr<std::string> ShareNcclId(
    Control& control, const std::vector<int>& ranks,
    const std::function<absl::StatusOr<std::string>()>& make);

// Returns a memory pool over ProcessGroupNCCL's allocator (ncclMemAlloc), which
// registerMemPool has registered with `group`'s communicator; later allocations
// are registered when they are made. `group` must outlive it. Unimplemented in
// a build without CUDA; InvalidArgument for another backend; FailedPrecondition
// before the group's first call, or if this GPU cannot allocate for NCCL.
absl::StatusOr<std::unique_ptr<RegisteredMemory>> RegisteredWithC10d(
    c10d::ProcessGroup& group, c10::Device device);

// MakeDeviceGraph, or a test's replacement.
using GraphMaker =
    std::function<absl::StatusOr<std::unique_ptr<DeviceGraph>>(c10::Device)>;

// The calls of one row with their own buffers, on one rank, used by one thread.
// Throws the exceptions of failed calls.
class Calls {
 public:
  // Rounds of calls in a timed graph.
  static constexpr int kGraphRounds = 20;

  // Prepares `in_flight` calls, each with its own buffers: from `memory`, if it
  // is not nullptr. The referenced objects, except `call`, must outlive this
  // one.
  Calls(Layer& layer, const Collective& collective, const Call& call,
        int in_flight, RegisteredMemory* memory = nullptr);

  void Fill();

  // Captures the calls, once for Run and kGraphRounds times for RunRounds,
  // which then replay them. The calls must have been made before, because
  // the first call performs setup that cannot be captured. Returns the
  // graph's error, or Unimplemented.
  absl::Status Capture(const GraphMaker& make);

  // Runs all calls once. Blocks until their results are in place.
  void Run();

  // Runs all calls rounds() times. Blocks until their results are in place.
  void RunRounds();
  int rounds() const { return many_ == nullptr ? 1 : kGraphRounds; }
  // Runs RunRounds and returns the seconds between two events in the device's
  // current stream, immediately before and after the calls.
  double TimeRounds();

  // Returns the first wrong element; its `total` counts those of all buffers.
  // Requires Fill and one Run before.
  std::optional<WrongElement> Check() const;

 private:
  void Launch();
  // Replays the graph, or launches the calls if it is nullptr.
  void Replay(DeviceGraph* graph);

  const Collective& collective_;
  const Call call_;
  const Layer::Start start_;
  std::vector<Buffers> buffers_;
  Works works_;
  std::unique_ptr<DeviceGraph> one_, many_;  // nullptr if not captured
};

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_NCCL_LAYER_H_
