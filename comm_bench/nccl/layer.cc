#include "comm_bench/nccl/layer.h"

#include <utility>

#include "comm_bench/timing/agreement.h"
#include "parallel/device/device_event.h"
#include "third_party/absl/status_macros.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"
#include "torch/csrc/distributed/c10d/Work.hpp"

namespace rankwise::comm_bench {
namespace {

class C10dLayer : public Layer {
 public:
  C10dLayer(c10::intrusive_ptr<c10d::ProcessGroup> group, std::string name)
      : group_(std::move(group)), name_(std::move(name)) {}

  std::string name() const override { return name_; }
  int rank() const override { return group_->getRank(); }

  Start Prepare(const Collective& collective, const Call& call) override {
    return [this, &collective, call](Buffers& buffers, Works& works) {
      collective.start(*group_, call, buffers, works);
    };
  }

  absl::StatusOr<std::unique_ptr<RegisteredMemory>> NewRegistered(
      c10::Device device) override {
    return RegisteredWithC10d(*group_, device);
  }

 private:
  const c10::intrusive_ptr<c10d::ProcessGroup> group_;
  const std::string name_;
};

absl::StatusOr<std::unique_ptr<DeviceGraph>> Recorded(
    const GraphMaker& make, c10::Device device, int rounds,
    const std::function<void()>& work) {
  ASSIGN_OR_RETURN(std::unique_ptr<DeviceGraph> graph, make(device));
  RETURN_IF_ERROR(graph->Capture([rounds, work] {
    for (int i = 0; i < rounds; ++i) work();
    return absl::OkStatus();
  }));
  return graph;
}

}  // namespace

std::unique_ptr<Layer> MakeC10dLayer(
    c10::intrusive_ptr<c10d::ProcessGroup> group, std::string name) {
  return std::make_unique<C10dLayer>(std::move(group), std::move(name));
}

absl::StatusOr<std::string> ShareNcclId(
    Control& control, const std::vector<int>& ranks,
    const std::function<absl::StatusOr<std::string>()>& make) {
  const int first = ranks.empty() ? 0 : ranks.front();
  absl::StatusOr<std::string> own = std::string();
  if (control.rank() == first) own = make();
  RETURN_IF_ERROR(AllOk(control, own.status(), "make an id for NCCL"));
  return GatherTexts(control, *own)[first];
}

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
  // Waiting for NCCL only orders streams.
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
