// Rank r gets the reduction of all ranks' r-th parts. In place, its output is
// that part of its input.
#include "comm_bench/collectives/buffers.h"
#include "comm_bench/collectives/entries.h"
#include "comm_bench/collectives/pattern.h"
#include "comm_bench/collectives/reduction.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace rankwise::comm_bench {
namespace {

Buffers Make(const Call& call) {
  Buffers buffers;
  buffers.input = NewBuffer(call, call.count);
  buffers.output = call.in_place
                       ? PartOf(buffers.input, call.rank, call.world_size)
                       : NewBuffer(call, call.count / call.world_size);
  return buffers;
}

void FillBuffers(const Call& call, Buffers& buffers) {
  FillUnwritten(buffers.output);
  Fill(buffers.input, {{call.count, 0, ContributionOf(call)}});
}

void Start(c10d::ProcessGroup& group, const Call& call, Buffers& buffers,
           Works& works) {
  c10d::ReduceScatterOptions options;
  options.reduceOp = C10dOp(call.op);
  works.push_back(
      group._reduce_scatter_base(buffers.output, buffers.input, options));
}

std::optional<WrongElement> Check(const Call& call, const Buffers& buffers) {
  const int64_t part = call.count / call.world_size;
  return FindWrong(buffers.output,
                   {{part, part * call.rank, ReductionOf(call)}},
                   ToleranceOf(call));
}

}  // namespace

constinit const Collective kReduceScatter = {
    .name = "reduce_scatter",
    .summary = "every rank gets its part of the reduction of all buffers",
    .reduces = true,
    .granularity = [](int n) { return int64_t{n}; },
    .bus_factor = [](int n) { return 1.0 * (n - 1) / n; },
    .make = Make,
    .fill = FillBuffers,
    .start = Start,
    .check = Check,
};

}  // namespace rankwise::comm_bench
