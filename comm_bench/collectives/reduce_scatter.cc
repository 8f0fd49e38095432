// Rank r gets the reduction of all ranks' r-th parts. In place, its output is
// that part of its input.
#include "comm_bench/collectives/entries.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace rankwise::comm_bench {
namespace {

Buffers Make(const Call& call) {
  Buffers buffers;
  buffers.input = NewBuffer(call, call.count);
  buffers.output = call.in_place
                       ? PartOf(buffers.input, call.rank, call.world_size)
                       : NewBuffer(call, PartOf(call));
  return buffers;
}

void Start(c10d::ProcessGroup& group, const Call& call, Buffers& buffers,
           Works& works) {
  c10d::ReduceScatterOptions options;
  options.reduceOp = C10dOp(call.op);
  works.push_back(
      group._reduce_scatter_base(buffers.output, buffers.input, options));
}

std::vector<NcclGroup> NcclCalls(const Call& call) {
  return {{{.kind = NcclCall::Kind::kReduceScatter, .count = PartOf(call)}}};
}

std::optional<WrongElement> Check(const Call& call, const Buffers& buffers) {
  const int64_t part = PartOf(call);
  return FindWrong(buffers.output,
                   {{part, part * call.rank, ReductionOf(call)}},
                   ToleranceOf(call));
}

}  // namespace

constinit const Collective kReduceScatter = {
    .name = "reduce_scatter",
    .summary = "every rank gets its part of the reduction of all buffers",
    .reduces = true,
    .granularity = OnePerRank,
    .bus_factor = OthersShare,
    .make = Make,
    .fill = FillContribution,
    .start = Start,
    .nccl_calls = NcclCalls,
    .check = Check,
};

}  // namespace rankwise::comm_bench
