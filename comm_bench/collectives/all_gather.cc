// Every rank gets all ranks' buffers, one after the other. In place, a rank's
// input is its own part of the output.
#include "comm_bench/collectives/entries.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace rankwise::comm_bench {
namespace {

Buffers Make(const Call& call) {
  Buffers buffers;
  buffers.output = NewBuffer(call, call.count);
  buffers.input = call.in_place
                      ? PartOf(buffers.output, call.rank, call.world_size)
                      : NewBuffer(call, PartOf(call));
  return buffers;
}

void Start(c10d::ProcessGroup& group, const Call&, Buffers& buffers,
           Works& works) {
  works.push_back(group._allgather_base(buffers.output, buffers.input));
}

std::vector<NcclGroup> NcclCalls(const Call& call) {
  return {{{.kind = NcclCall::Kind::kAllGather, .count = PartOf(call)}}};
}

std::optional<WrongElement> Check(const Call& call, const Buffers& buffers) {
  return FindWrong(buffers.output, PartsOfAllRanks(call));
}

}  // namespace

constinit const Collective kAllGather = {
    .name = "all_gather",
    .summary = "every rank gets the buffers of all, one after the other",
    .replayable = true,
    .granularity = OnePerRank,
    .bus_factor = OthersShare,
    .make = Make,
    .fill = FillOwnData,
    .start = Start,
    .nccl_calls = NcclCalls,
    .check = Check,
};

}  // namespace rankwise::comm_bench
