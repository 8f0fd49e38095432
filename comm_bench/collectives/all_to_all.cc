// Rank r gets every rank's r-th part.
#include "comm_bench/collectives/buffers.h"
#include "comm_bench/collectives/entries.h"
#include "comm_bench/collectives/pattern.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace rankwise::comm_bench {
namespace {

void FillBuffers(const Call& call, Buffers& buffers) {
  FillUnwritten(buffers.output);
  Fill(buffers.input, {{call.count, 0, DataOf(call.rank)}});
}

void Start(c10d::ProcessGroup& group, const Call&, Buffers& buffers,
           Works& works) {
  works.push_back(group.alltoall_base(buffers.output, buffers.input,
                                      buffers.output_splits,
                                      buffers.input_splits));
}

std::optional<WrongElement> Check(const Call& call, const Buffers& buffers) {
  const int64_t part = call.count / call.world_size;
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
    .granularity = [](int n) { return int64_t{n}; },
    .bus_factor = [](int n) { return 1.0 * (n - 1) / n; },
    .make = WholeBuffers,
    .fill = FillBuffers,
    .start = Start,
    .check = Check,
};

}  // namespace rankwise::comm_bench
