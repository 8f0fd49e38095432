#include "comm_bench/modes/step_replay.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <string>
#include <thread>
#include <tuple>
#include <utility>

#include "ATen/ops/zeros.h"
#include "comm_bench/collectives/element_types.h"
#include "comm_bench/modes/recorded_traffic.h"
#include "comm_bench/timing/device_sync.h"
#include "comm_bench/timing/seconds_since.h"
#include "torch/csrc/distributed/c10d/Backend.hpp"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace rankwise::comm_bench {
namespace {

using Clock = std::chrono::steady_clock;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

// Sleeps, and is punctual all the same: a sleep ends late by up to a
// scheduler's tick. Returns how long it took.
double Pass(double seconds) {
  constexpr double kSpinSeconds = 200e-6;
  const Clock::time_point start = Clock::now();
  if (seconds > kSpinSeconds) {
    std::this_thread::sleep_for(
        std::chrono::duration<double>(seconds - kSpinSeconds));
  }
  while (SecondsSince(start) < seconds) std::this_thread::yield();
  return SecondsSince(start);
}

// One recorded event, ready to be started again and again.
struct Event {
  std::string op;
  c10::intrusive_ptr<c10d::ProcessGroup> group;
  int peer = -1;  // in the group
  int tag = 0;    // the message's number on its way: unique within the step
  std::vector<at::Tensor> tensors;
  at::Tensor gathered;
  WorkPtr work;  // null before the start and after the end
};

}  // namespace

struct StepReplay::Parts {
  c10::Device device = c10::kCPU;
  std::vector<ReplayAction> plan;
  std::vector<Event> events;

  void Add(const RecordedTransfer& recorded, const ReplayGroups& groups);
  void Number();
  void Start(Event& event);
  WorkPtr Call(Event& event);
  void AwaitEnd(Event& event);
};

void StepReplay::Parts::Add(const RecordedTransfer& recorded,
                            const ReplayGroups& groups) {
  Event& event = events.emplace_back();
  event.op = recorded.op;
  event.group = groups.at(recorded.ranks);
  const auto& ranks = recorded.ranks;
  event.peer = static_cast<int>(
      ranks.empty() ? recorded.peer
                    : std::find(ranks.begin(), ranks.end(), recorded.peer) -
                          ranks.begin());
  if (event.op == "barrier" || IsCoalescingMark(recorded)) return;
  const at::TensorOptions options =
      at::TensorOptions(*ParseDtype(recorded.dtype)).device(device);
  event.tensors = {at::zeros({recorded.count}, options)};
  if (event.op == "all_gather") {
    event.gathered =
        at::zeros({recorded.count * event.group->getSize()}, options);
  }
}

// Messages of one way are received in the order in which they are sent.
void StepReplay::Parts::Number() {
  std::map<std::tuple<c10d::ProcessGroup*, std::string, int>, int> next;
  for (Event& event : events) {
    event.tag = next[{event.group.get(), event.op, event.peer}]++;
  }
}

WorkPtr StepReplay::Parts::Call(Event& event) {
  c10d::ProcessGroup& group = *event.group;
  if (event.op == "all_reduce") return group.allreduce(event.tensors);
  if (event.op == "broadcast") {
    c10d::BroadcastOptions options;
    options.rootRank = event.peer;
    return group.broadcast(event.tensors, options);
  }
  if (event.op == "reduce") {
    c10d::ReduceOptions options;
    options.rootRank = event.peer;
    return group.reduce(event.tensors, options);
  }
  if (event.op == "all_gather") {
    return group._allgather_base(event.gathered, event.tensors[0]);
  }
  if (event.op == "send") {
    return group.send(event.tensors, event.peer, event.tag);
  }
  if (event.op == "recv") {
    return group.recv(event.tensors, event.peer, event.tag);
  }
  if (event.op == "barrier") return group.barrier();
  // Marks: a backend that cannot coalesce starts the calls one by one.
  if (!group.getBackend(device.type())->supportsCoalescing()) return nullptr;
  if (event.op == "coalesced") return group.endCoalescing(device.type());
  group.startCoalescing(device.type());
  return nullptr;
}

void StepReplay::Parts::Start(Event& event) { event.work = Call(event); }

void StepReplay::Parts::AwaitEnd(Event& event) {
  if (event.work == nullptr) return;
  event.work->wait();
  event.work.reset();
}

StepReplay::StepReplay(const TrafficRecord& record, double lead_in_seconds,
                       const ReplayGroups& groups, c10::Device device)
    : parts_(std::make_unique<Parts>()) {
  parts_->device = device;
  parts_->plan = PlanReplay(record, lead_in_seconds);
  for (const RecordedTransfer& event : record.events) {
    parts_->Add(event, groups);
  }
  parts_->Number();
}

StepReplay::~StepReplay() = default;
StepReplay::StepReplay(StepReplay&&) noexcept = default;

double StepReplay::Run(bool keep_gaps) {
  Parts& parts = *parts_;
  const Clock::time_point start = Clock::now();
  double passed = 0;
  for (const ReplayAction& action : parts.plan) {
    if (keep_gaps) passed += Pass(action.gap_seconds);
    for (size_t other : action.after) parts.AwaitEnd(parts.events[other]);
    Event& event = parts.events[action.event];
    if (action.kind == ReplayAction::Kind::kStart) {
      parts.Start(event);
    } else {
      parts.AwaitEnd(event);
    }
  }
  for (Event& event : parts.events) parts.AwaitEnd(event);
  SynchronizeDevice(parts.device);
  return SecondsSince(start) - passed;
}

}  // namespace rankwise::comm_bench
