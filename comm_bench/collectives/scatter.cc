// Rank r gets the r-th part of the root's buffer. In place, the root's output
// is its own part of the input; the others' calls are the same.
#include <utility>

#include "comm_bench/collectives/buffers.h"
#include "comm_bench/collectives/entries.h"
#include "comm_bench/collectives/pattern.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace rankwise::comm_bench {
namespace {

Buffers Make(const Call& call) {
  RootedBuffers made = MakeRootedBuffers(call);
  Buffers buffers;
  buffers.input = made.whole;
  buffers.input_parts = std::move(made.parts);
  buffers.output = made.own;
  buffers.output_parts = {made.own};
  return buffers;
}

void FillBuffers(const Call& call, Buffers& buffers) {
  FillUnwritten(buffers.output);
  if (call.rank != call.root) return;
  Fill(buffers.input, {{call.count, 0, DataOf(call.root)}});
}

void Start(c10d::ProcessGroup& group, const Call& call, Buffers& buffers,
           Works& works) {
  std::vector<std::vector<at::Tensor>> inputs;
  if (call.rank == call.root) inputs.push_back(buffers.input_parts);
  c10d::ScatterOptions options;
  options.rootRank = call.root;
  works.push_back(group.scatter(buffers.output_parts, inputs, options));
}

std::optional<WrongElement> Check(const Call& call, const Buffers& buffers) {
  const int64_t part = call.count / call.world_size;
  return FindWrong(buffers.output,
                   {{part, part * call.rank, DataOf(call.root)}});
}

}  // namespace

constinit const Collective kScatter = {
    .name = "scatter",
    .summary = "every rank gets its part of the root's buffer",
    .rooted = true,
    .granularity = [](int n) { return int64_t{n}; },
    .bus_factor = [](int n) { return 1.0 * (n - 1) / n; },
    .make = Make,
    .fill = FillBuffers,
    .start = Start,
    .check = Check,
};

}  // namespace rankwise::comm_bench
