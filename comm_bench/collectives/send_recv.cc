// A ring: every rank sends its buffer to the next and receives the previous
// one's at the same time.
#include "comm_bench/collectives/entries.h"

namespace rankwise::comm_bench {
namespace {

int Next(const Call& call) { return (call.rank + 1) % call.world_size; }

int Previous(const Call& call) {
  return (call.rank + call.world_size - 1) % call.world_size;
}

void Start(c10d::ProcessGroup& group, const Call& call, Buffers& buffers,
           Works& works) {
  Exchange(group, call, buffers, Next(call), Previous(call), works);
}

std::vector<NcclGroup> NcclCalls(const Call& call) {
  return {{NcclSend(Next(call), call.count),
           NcclReceive(Previous(call), call.count)}};
}

std::optional<WrongElement> Check(const Call& call, const Buffers& buffers) {
  return CheckDataOf(call, buffers, Previous(call));
}

}  // namespace

constinit const Collective kSendRecv = {
    .name = "send_recv",
    .summary =
        "a ring: every rank sends to the next and receives from the "
        "previous",
    .in_place = false,
    .min_world_size = 2,
    .make = WholeBuffers,
    .fill = FillOwnData,
    .start = Start,
    .nccl_calls = NcclCalls,
    .check = Check,
};

}  // namespace rankwise::comm_bench
