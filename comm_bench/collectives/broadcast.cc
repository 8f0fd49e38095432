// Every rank gets the root's buffer. c10d's call is in place; out of place adds
// the root's copy from its input to its output.
#include "comm_bench/collectives/entries.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace rankwise::comm_bench {
namespace {

Buffers Make(const Call& call) {
  Call own = call;
  own.in_place = call.in_place || call.rank != call.root;
  return WholeBuffers(own);
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

std::vector<NcclGroup> NcclCalls(const Call& call) {
  return {{{.kind = NcclCall::Kind::kBroadcast,
            .count = call.count,
            .peer = call.root}}};
}

std::optional<WrongElement> Check(const Call& call, const Buffers& buffers) {
  return CheckDataOf(call, buffers, call.root);
}

}  // namespace

constinit const Collective kBroadcast = {
    .name = "broadcast",
    .summary =
        "every rank gets the root's buffer; out of place with the "
        "root's copy that c10d's in-place call needs",
    .rooted = true,
    .prefers_in_place = true,
    .replayable = true,
    .make = Make,
    .fill = FillRootsData,
    .start = Start,
    .nccl_calls = NcclCalls,
    .check = Check,
};

}  // namespace rankwise::comm_bench
