// The calls of one row of the benchmark, on buffers of their own.
#ifndef RANKWISE_COMM_BENCH_NCCL_CALLS_H_
#define RANKWISE_COMM_BENCH_NCCL_CALLS_H_

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "c10/core/Device.h"
#include "comm_bench/collectives/collective.h"
#include "comm_bench/nccl/layer.h"
#include "parallel/device/graph.h"

namespace rankwise::comm_bench {

// MakeDeviceGraph, or a test's.
using GraphMaker =
    std::function<absl::StatusOr<std::unique_ptr<DeviceGraph>>(c10::Device)>;

// One rank's, used by one thread. Throws what a failed call throws.
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
  // replay them from now on. The calls have been made before: libraries set up
  // at the first what cannot be recorded. The graph's own error, or
  // Unimplemented.
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

#endif  // RANKWISE_COMM_BENCH_NCCL_CALLS_H_
