// The root gets all ranks' buffers, one after the other. In place, its input is
// its own part of the output; the others' calls are the same.
#include <utility>

#include "comm_bench/collectives/entries.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace rankwise::comm_bench {
namespace {

Buffers Make(const Call& call) {
  RootedBuffers made = MakeRootedBuffers(call);
  Buffers buffers;
  buffers.output = made.whole;
  buffers.output_parts = std::move(made.parts);
  buffers.input = made.own;
  buffers.input_parts = {made.own};
  return buffers;
}

void Start(c10d::ProcessGroup& group, const Call& call, Buffers& buffers,
           Works& works) {
  std::vector<std::vector<at::Tensor>> outputs;
  if (call.rank == call.root) outputs.push_back(buffers.output_parts);
  c10d::GatherOptions options;
  options.rootRank = call.root;
  works.push_back(group.gather(outputs, buffers.input_parts, options));
}

std::vector<NcclGroup> NcclCalls(const Call& call) {
  NcclGroup group;
  const bool root = call.rank == call.root;
  if (!root || !call.in_place) {
    group.push_back(NcclSend(call.root, PartOf(call)));
  }
  for (int rank = 0; root && rank < call.world_size; ++rank) {
    if (rank == call.root && call.in_place) continue;
    group.push_back(NcclReceive(rank, PartOf(call), rank * PartOf(call)));
  }
  return {group};
}

std::optional<WrongElement> Check(const Call& call, const Buffers& buffers) {
  if (call.rank != call.root) return std::nullopt;
  return FindWrong(buffers.output, PartsOfAllRanks(call));
}

}  // namespace

constinit const Collective kGather = {
    .name = "gather",
    .summary = "the root gets the buffers of all, one after the other",
    .rooted = true,
    .granularity = OnePerRank,
    .bus_factor = OthersShare,
    .make = Make,
    .fill = FillOwnData,
    .start = Start,
    .nccl_calls = NcclCalls,
    .check = Check,
};

}  // namespace rankwise::comm_bench
