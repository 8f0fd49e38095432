// Rank r gets the r-th part of the root's buffer. In place, the root's output
// is its own part of the input; the others' calls are the same.
#include <utility>

#include "comm_bench/collectives/entries.h"
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

void Start(c10d::ProcessGroup& group, const Call& call, Buffers& buffers,
           Works& works) {
  std::vector<std::vector<at::Tensor>> inputs;
  if (call.rank == call.root) inputs.push_back(buffers.input_parts);
  c10d::ScatterOptions options;
  options.rootRank = call.root;
  works.push_back(group.scatter(buffers.output_parts, inputs, options));
}

std::vector<NcclGroup> NcclCalls(const Call& call) {
  NcclGroup group;
  const bool root = call.rank == call.root;
  if (!root || !call.in_place) {
    group.push_back(NcclReceive(call.root, PartOf(call)));
  }
  for (int rank = 0; root && rank < call.world_size; ++rank) {
    if (rank == call.root && call.in_place) continue;
    group.push_back(NcclSend(rank, PartOf(call), rank * PartOf(call)));
  }
  return {group};
}

std::optional<WrongElement> Check(const Call& call, const Buffers& buffers) {
  const int64_t part = PartOf(call);
  return FindWrong(buffers.output,
                   {{part, part * call.rank, DataOf(call.root)}});
}

}  // namespace

constinit const Collective kScatter = {
    .name = "scatter",
    .summary = "every rank gets its part of the root's buffer",
    .rooted = true,
    .granularity = OnePerRank,
    .bus_factor = OthersShare,
    .make = Make,
    .fill = FillRootsData,
    .start = Start,
    .nccl_calls = NcclCalls,
    .check = Check,
};

}  // namespace rankwise::comm_bench
