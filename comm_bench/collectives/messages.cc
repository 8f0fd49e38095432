// Messages between two ranks at a time, and the barrier, which has none.
#include <utility>

#include "comm_bench/collectives/entries.h"
#include "torch/csrc/distributed/c10d/Backend.hpp"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"
#include "torch/csrc/distributed/c10d/Work.hpp"

namespace rankwise::comm_bench {
namespace {

constexpr int kTag = 0;

// Starts sending the input to rank `to` and receiving the output from rank
// `from`, neither waiting for the other. NCCL, which would run them one after
// the other, gets both as one group.
void Exchange(c10d::ProcessGroup& group, const Call& call, Buffers& buffers,
              int to, int from, Works& works) {
  const c10::DeviceType device = call.device.type();
  const bool grouped = group.getBackend(device)->supportsCoalescing();
  if (grouped) group.startCoalescing(device);
  auto received = group.recv(buffers.output_parts, from, kTag);
  auto sent = group.send(buffers.input_parts, to, kTag);
  if (grouped) {
    works.push_back(group.endCoalescing(device));
  } else {
    works.push_back(std::move(received));
    works.push_back(std::move(sent));
  }
}

int Next(const Call& call) { return (call.rank + 1) % call.world_size; }

int Previous(const Call& call) {
  return (call.rank + call.world_size - 1) % call.world_size;
}

// Pairs ranks 0 and 1, 2 and 3, ...
int Peer(const Call& call) { return call.rank ^ 1; }

bool HasPeer(const Call& call) { return Peer(call) < call.world_size; }

bool PlaysPingPong(const Call& call) { return call.rank < 2; }

void StartPingPong(c10d::ProcessGroup& group, const Call& call,
                   Buffers& buffers, Works&) {
  if (!PlaysPingPong(call)) return;
  const auto send = [&] {
    group.send(buffers.input_parts, Peer(call), kTag)->wait();
  };
  if (call.rank == 0) send();
  group.recv(buffers.output_parts, Peer(call), kTag)->wait();
  if (call.rank == 1) send();
}

// Two groups, since the answer follows the message.
std::vector<NcclGroup> PingPongCalls(const Call& call) {
  if (!PlaysPingPong(call)) return {};
  const NcclGroup send = {NcclSend(Peer(call), call.count)};
  const NcclGroup receive = {NcclReceive(Peer(call), call.count)};
  if (call.rank == 0) return {send, receive};
  return {receive, send};
}

}  // namespace

// A ring: every rank sends its buffer to the next and receives the previous
// one's at the same time.
constinit const Collective kSendRecv = {
    .name = "send_recv",
    .summary =
        "a ring: every rank sends to the next and receives from the "
        "previous",
    .in_place = false,
    .min_world_size = 2,
    .make = WholeBuffers,
    .fill = FillOwnData,
    .start =
        [](c10d::ProcessGroup& group, const Call& call, Buffers& buffers,
           Works& works) {
          Exchange(group, call, buffers, Next(call), Previous(call), works);
        },
    .nccl_calls = [](const Call& call) -> std::vector<NcclGroup> {
      return {{NcclSend(Next(call), call.count),
               NcclReceive(Previous(call), call.count)}};
    },
    .check =
        [](const Call& call, const Buffers& buffers) {
          return CheckDataOf(call, buffers, Previous(call));
        },
};

// Rank 0 sends to rank 1, which answers when it has received. Half the round
// trip is reported. Other ranks do nothing.
constinit const Collective kPingPong = {
    .name = "ping_pong",
    .summary = "half of the round trip of a message between ranks 0 and 1",
    .in_place = false,
    .min_world_size = 2,
    .calls_per_iteration = 2,
    .make = WholeBuffers,
    .fill = FillOwnData,
    .start = StartPingPong,
    .nccl_calls = PingPongCalls,
    .check = [](const Call& call,
                const Buffers& buffers) -> std::optional<WrongElement> {
      if (!PlaysPingPong(call)) return std::nullopt;
      return CheckDataOf(call, buffers, Peer(call));
    },
};

// Pairs of ranks send to each other at the same time. The last of an odd number
// of ranks does nothing. Bus bandwidth counts both directions.
constinit const Collective kBidirectional = {
    .name = "bidirectional",
    .summary = "pairs of ranks send to each other at the same time",
    .in_place = false,
    .min_world_size = 2,
    .bus_factor = [](const Call&) { return 2.0; },
    .make = WholeBuffers,
    .fill = FillOwnData,
    .start =
        [](c10d::ProcessGroup& group, const Call& call, Buffers& buffers,
           Works& works) {
          if (!HasPeer(call)) return;
          Exchange(group, call, buffers, Peer(call), Peer(call), works);
        },
    .nccl_calls = [](const Call& call) -> std::vector<NcclGroup> {
      if (!HasPeer(call)) return {};
      return {{NcclSend(Peer(call), call.count),
               NcclReceive(Peer(call), call.count)}};
    },
    .check = [](const Call& call,
                const Buffers& buffers) -> std::optional<WrongElement> {
      if (!HasPeer(call)) return std::nullopt;
      return CheckDataOf(call, buffers, Peer(call));
    },
};

// Every rank waits for all others. Calls the backend directly:
// ProcessGroup::barrier keeps a tensor in a static variable and cannot be
// called if ranks are threads.
constinit const Collective kBarrier = {
    .name = "barrier",
    .summary = "every rank waits until all have come",
    .has_elements = false,
    .in_place = false,
    .replayable = true,
    .make = [](const Call&) { return Buffers(); },
    .fill = [](const Call&, Buffers&) {},
    .start =
        [](c10d::ProcessGroup& group, const Call& call, Buffers&,
           Works& works) {
          c10d::BarrierOptions options;
          options.device = call.device;
          works.push_back(
              group.getBackend(call.device.type())->barrier(options));
        },
    .check = [](const Call&, const Buffers&) -> std::optional<WrongElement> {
      return std::nullopt;
    },
};

}  // namespace rankwise::comm_bench
