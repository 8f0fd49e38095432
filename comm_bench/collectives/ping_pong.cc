// Rank 0 sends to rank 1, which answers when it has received. Half the round
// trip is reported. Other ranks do nothing.
#include "comm_bench/collectives/entries.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"
#include "torch/csrc/distributed/c10d/Work.hpp"

namespace rankwise::comm_bench {
namespace {

bool Plays(const Call& call) { return call.rank < 2; }

void Start(c10d::ProcessGroup& group, const Call& call, Buffers& buffers,
           Works&) {
  if (!Plays(call)) return;
  const int peer = 1 - call.rank;
  if (call.rank == 0) {
    group.send(buffers.input_parts, peer, kMessageTag)->wait();
  }
  group.recv(buffers.output_parts, peer, kMessageTag)->wait();
  if (call.rank == 1) {
    group.send(buffers.input_parts, peer, kMessageTag)->wait();
  }
}

// Two groups, since the answer follows the message.
std::vector<NcclGroup> NcclCalls(const Call& call) {
  if (!Plays(call)) return {};
  const int peer = 1 - call.rank;
  const NcclGroup send = {NcclSend(peer, call.count)};
  const NcclGroup receive = {NcclReceive(peer, call.count)};
  if (call.rank == 0) return {send, receive};
  return {receive, send};
}

std::optional<WrongElement> Check(const Call& call, const Buffers& buffers) {
  if (!Plays(call)) return std::nullopt;
  return CheckDataOf(call, buffers, 1 - call.rank);
}

}  // namespace

constinit const Collective kPingPong = {
    .name = "ping_pong",
    .summary = "half of the round trip of a message between ranks 0 and 1",
    .in_place = false,
    .min_world_size = 2,
    .trips = 2,
    .make = WholeBuffers,
    .fill = FillOwnData,
    .start = Start,
    .nccl_calls = NcclCalls,
    .check = Check,
};

}  // namespace rankwise::comm_bench
