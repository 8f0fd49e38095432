// Rank r gets every rank's r-th part.
#include "comm_bench/collectives/entries.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace rankwise::comm_bench {
namespace {

void Start(c10d::ProcessGroup& group, const Call&, Buffers& buffers,
           Works& works) {
  works.push_back(group.alltoall_base(buffers.output, buffers.input,
                                      buffers.output_splits,
                                      buffers.input_splits));
}

std::vector<NcclGroup> NcclCalls(const Call& call) {
  NcclGroup group;
  for (int peer = 0; peer < call.world_size; ++peer) {
    group.push_back(NcclSend(peer, PartOf(call), peer * PartOf(call)));
    group.push_back(NcclReceive(peer, PartOf(call), peer * PartOf(call)));
  }
  return {group};
}

std::optional<WrongElement> Check(const Call& call, const Buffers& buffers) {
  const int64_t part = PartOf(call);
  std::vector<PatternRun> parts;
  for (int from = 0; from < call.world_size; ++from) {
    parts.push_back({part, part * call.rank, DataOf(from)});
  }
  return FindWrong(buffers.output, parts);
}

}  // namespace

constinit const Collective kAllToAll = {
    .name = "all_to_all",
    .summary = "every rank sends an equal part of its buffer to each",
    .in_place = false,
    .granularity = OnePerRank,
    .bus_factor = OthersShare,
    .make = WholeBuffers,
    .fill = FillOwnData,
    .start = Start,
    .nccl_calls = NcclCalls,
    .check = Check,
};

}  // namespace rankwise::comm_bench
