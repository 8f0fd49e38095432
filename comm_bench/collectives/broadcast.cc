// Every rank gets the root's buffer. c10d's call is in place; out of place adds
// the root's copy from its input to its output.
#include "comm_bench/collectives/buffers.h"
#include "comm_bench/collectives/entries.h"
#include "comm_bench/collectives/pattern.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace rankwise::comm_bench {
namespace {

Buffers Make(const Call& call) {
  Call own = call;
  own.in_place = call.in_place || call.rank != call.root;
  return WholeBuffers(own);
}

void FillBuffers(const Call& call, Buffers& buffers) {
  FillUnwritten(buffers.output);
  if (call.rank != call.root) return;
  Fill(buffers.input, {{call.count, 0, DataOf(call.root)}});
}

void Start(c10d::ProcessGroup& group, const Call& call, Buffers& buffers,
           Works& works) {
  if (!call.in_place && call.rank == call.root) {
    buffers.output.copy_(buffers.input);
  }
  c10d::BroadcastOptions options;
  options.rootRank = call.root;
  works.push_back(group.broadcast(buffers.output_parts, options));
}

std::optional<WrongElement> Check(const Call& call, const Buffers& buffers) {
  return FindWrong(buffers.output, {{call.count, 0, DataOf(call.root)}});
}

}  // namespace

constinit const Collective kBroadcast = {
    .name = "broadcast",
    .summary =
        "every rank gets the root's buffer; out of place with the "
        "root's copy that c10d's in-place call needs",
    .rooted = true,
    .prefers_in_place = true,
    .bus_factor = [](int) { return 1.0; },
    .make = Make,
    .fill = FillBuffers,
    .start = Start,
    .check = Check,
};

}  // namespace rankwise::comm_bench
