// A ring: every rank sends its buffer to the next and receives the previous
// one's at the same time.
#include "comm_bench/collectives/buffers.h"
#include "comm_bench/collectives/entries.h"
#include "comm_bench/collectives/messages.h"

namespace rankwise::comm_bench {
namespace {

int Previous(const Call& call) {
  return (call.rank + call.world_size - 1) % call.world_size;
}

void Start(c10d::ProcessGroup& group, const Call& call, Buffers& buffers,
           Works& works) {
  const int next = (call.rank + 1) % call.world_size;
  Exchange(group, call, buffers, next, Previous(call), works);
}

std::optional<WrongElement> Check(const Call& call, const Buffers& buffers) {
  return CheckMessage(call, buffers, Previous(call));
}

}  // namespace

constinit const Collective kSendRecv = {
    .name = "send_recv",
    .summary =
        "a ring: every rank sends to the next and receives from the "
        "previous",
    .in_place = false,
    .min_world_size = 2,
    .bus_factor = [](int) { return 1.0; },
    .make = WholeBuffers,
    .fill = FillMessage,
    .start = Start,
    .check = Check,
};

}  // namespace rankwise::comm_bench
