#include "comm_bench/nccl/calls.h"

#include <utility>

#include "comm_bench/timing/timing.h"
#include "parallel/device/device_event.h"
#include "third_party/absl/status_macros.h"
#include "torch/csrc/distributed/c10d/Work.hpp"

namespace rankwise::comm_bench {
namespace {

absl::StatusOr<std::unique_ptr<DeviceGraph>> Recorded(
    const GraphMaker& make, c10::Device device, int rounds,
    const std::function<void()>& work) {
  ASSIGN_OR_RETURN(std::unique_ptr<DeviceGraph> graph, make(device));
  absl::Status captured = graph->Capture([rounds, work] {
    for (int i = 0; i < rounds; ++i) work();
    return absl::OkStatus();
  });
  if (!captured.ok()) return captured;
  return graph;
}

}  // namespace

Calls::Calls(Layer& layer, const Collective& collective, const Call& call,
             int in_flight, RegisteredMemory* memory)
    : collective_(collective),
      call_(call),
      start_(layer.Prepare(collective_, call_)) {
  Call making = call;
  making.memory = memory;
  for (int i = 0; i < in_flight; ++i)
    buffers_.push_back(collective.make(making));
}

void Calls::Fill() {
  for (Buffers& buffers : buffers_) collective_.fill(call_, buffers);
}

absl::Status Calls::Capture(const GraphMaker& make) {
  const auto launch = [this] { Launch(); };
  ASSIGN_OR_RETURN(auto one, Recorded(make, call_.device, 1, launch));
  ASSIGN_OR_RETURN(auto many,
                   Recorded(make, call_.device, kGraphRounds, launch));
  one_ = std::move(one);
  many_ = std::move(many);
  return absl::OkStatus();
}

void Calls::Launch() {
  for (Buffers& buffers : buffers_) start_(buffers, works_);
  for (const auto& work : works_) work->wait();
  works_.clear();
}

void Calls::Replay(DeviceGraph* graph) {
  if (graph != nullptr) {
    graph->Replay();
  } else {
    Launch();
  }
}

void Calls::Run() {
  Replay(one_.get());
  // A wait for NCCL only orders streams.
  SynchronizeDevice(call_.device);
}

void Calls::RunRounds() {
  Replay(many_.get());
  SynchronizeDevice(call_.device);
}

double Calls::TimeRounds() {
  const DeviceEvent before(call_.device);
  Replay(many_.get());
  const DeviceEvent after(call_.device);
  SynchronizeDevice(call_.device);
  return WaitForSecondsBetween(before, after);
}

std::optional<WrongElement> Calls::Check() const {
  std::optional<WrongElement> first;
  for (const Buffers& buffers : buffers_) {
    const std::optional<WrongElement> wrong = collective_.check(call_, buffers);
    if (!wrong.has_value()) continue;
    if (first.has_value()) {
      first->total += wrong->total;
    } else {
      first = wrong;
    }
  }
  return first;
}

}  // namespace rankwise::comm_bench
