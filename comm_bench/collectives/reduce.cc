// The root gets the reduction of all ranks' buffers. c10d's call is in place
// and may leave anything in the others' buffers; out of place adds the copy
// that saves their input.
#include "comm_bench/collectives/entries.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace rankwise::comm_bench {
namespace {

void Start(c10d::ProcessGroup& group, const Call& call, Buffers& buffers,
           Works& works) {
  if (!call.in_place) buffers.output.copy_(buffers.input);
  c10d::ReduceOptions options;
  options.reduceOp = C10dOp(call.op);
  options.rootRank = call.root;
  works.push_back(group.reduce(buffers.output_parts, options));
}

std::vector<NcclGroup> NcclCalls(const Call& call) {
  return {{{.kind = NcclCall::Kind::kReduce,
            .count = call.count,
            .peer = call.root}}};
}

std::optional<WrongElement> Check(const Call& call, const Buffers& buffers) {
  if (call.rank != call.root) return std::nullopt;
  return FindWrong(buffers.output, {{call.count, 0, ReductionOf(call)}},
                   ToleranceOf(call));
}

}  // namespace

constinit const Collective kReduce = {
    .name = "reduce",
    .summary =
        "the root gets the reduction of all buffers; out of place with "
        "the copy that c10d's in-place call needs",
    .reduces = true,
    .rooted = true,
    .prefers_in_place = true,
    .replayable = true,
    .make = WholeBuffers,
    .fill = FillContribution,
    .start = Start,
    .nccl_calls = NcclCalls,
    .check = Check,
};

}  // namespace rankwise::comm_bench
