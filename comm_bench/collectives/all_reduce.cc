// Every rank gets the reduction of all ranks' buffers. c10d's call is in place;
// out of place adds the copy that it makes a trainer pay.
#include "comm_bench/collectives/entries.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace rankwise::comm_bench {
namespace {

void Start(c10d::ProcessGroup& group, const Call& call, Buffers& buffers,
           Works& works) {
  if (!call.in_place) buffers.output.copy_(buffers.input);
  c10d::AllreduceOptions options;
  options.reduceOp = C10dOp(call.op);
  works.push_back(group.allreduce(buffers.output_parts, options));
}

std::vector<NcclGroup> NcclCalls(const Call& call) {
  return {{{.kind = NcclCall::Kind::kAllReduce, .count = call.count}}};
}

std::optional<WrongElement> Check(const Call& call, const Buffers& buffers) {
  return FindWrong(buffers.output, {{call.count, 0, ReductionOf(call)}},
                   ToleranceOf(call));
}

}  // namespace

constinit const Collective kAllReduce = {
    .name = "all_reduce",
    .summary =
        "every rank gets the reduction of all buffers; out of place "
        "with the copy that c10d's in-place call needs",
    .reduces = true,
    .prefers_in_place = true,
    .replayable = true,
    .bus_factor = [](int n) { return 2.0 * (n - 1) / n; },
    .make = WholeBuffers,
    .fill = FillContribution,
    .start = Start,
    .nccl_calls = NcclCalls,
    .check = Check,
};

}  // namespace rankwise::comm_bench
