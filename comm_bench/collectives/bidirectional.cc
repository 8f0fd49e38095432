// Ranks 0 and 1, 2 and 3, ... send to each other at the same time. The last of
// an odd number of ranks does nothing. Bus bandwidth counts both directions.
#include "comm_bench/collectives/entries.h"

namespace rankwise::comm_bench {
namespace {

int Peer(const Call& call) { return call.rank ^ 1; }

bool HasPeer(const Call& call) { return Peer(call) < call.world_size; }

void Start(c10d::ProcessGroup& group, const Call& call, Buffers& buffers,
           Works& works) {
  if (!HasPeer(call)) return;
  Exchange(group, call, buffers, Peer(call), Peer(call), works);
}

std::vector<NcclGroup> NcclCalls(const Call& call) {
  if (!HasPeer(call)) return {};
  return {
      {NcclSend(Peer(call), call.count), NcclReceive(Peer(call), call.count)}};
}

std::optional<WrongElement> Check(const Call& call, const Buffers& buffers) {
  if (!HasPeer(call)) return std::nullopt;
  return CheckDataOf(call, buffers, Peer(call));
}

}  // namespace

constinit const Collective kBidirectional = {
    .name = "bidirectional",
    .summary = "pairs of ranks send to each other at the same time",
    .in_place = false,
    .min_world_size = 2,
    .bus_factor = [](int) { return 2.0; },
    .make = WholeBuffers,
    .fill = FillOwnData,
    .start = Start,
    .nccl_calls = NcclCalls,
    .check = Check,
};

}  // namespace rankwise::comm_bench
