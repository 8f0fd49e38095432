// Every rank gets all ranks' buffers, one after the other. In place, a rank's
// input is its own part of the output.
#include "comm_bench/collectives/buffers.h"
#include "comm_bench/collectives/entries.h"
#include "comm_bench/collectives/pattern.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace rankwise::comm_bench {
namespace {

Buffers Make(const Call& call) {
  Buffers buffers;
  buffers.output = NewBuffer(call, call.count);
  buffers.input = call.in_place
                      ? PartOf(buffers.output, call.rank, call.world_size)
                      : NewBuffer(call, call.count / call.world_size);
  return buffers;
}

void FillBuffers(const Call& call, Buffers& buffers) {
  FillUnwritten(buffers.output);
  Fill(buffers.input, {{buffers.input.numel(), 0, DataOf(call.rank)}});
}

void Start(c10d::ProcessGroup& group, const Call&, Buffers& buffers,
           Works& works) {
  works.push_back(group._allgather_base(buffers.output, buffers.input));
}

std::optional<WrongElement> Check(const Call& call, const Buffers& buffers) {
  std::vector<PatternRun> parts;
  for (int rank = 0; rank < call.world_size; ++rank) {
    parts.push_back({call.count / call.world_size, 0, DataOf(rank)});
  }
  return FindWrong(buffers.output, parts);
}

}  // namespace

constinit const Collective kAllGather = {
    .name = "all_gather",
    .summary = "every rank gets the buffers of all, one after the other",
    .granularity = [](int n) { return int64_t{n}; },
    .bus_factor = [](int n) { return 1.0 * (n - 1) / n; },
    .make = Make,
    .fill = FillBuffers,
    .start = Start,
    .check = Check,
};

}  // namespace rankwise::comm_bench
