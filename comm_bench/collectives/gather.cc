// The root gets all ranks' buffers, one after the other. In place, its input is
// its own part of the output; the others' calls are the same.
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
  buffers.output = made.whole;
  buffers.output_parts = std::move(made.parts);
  buffers.input = made.own;
  buffers.input_parts = {made.own};
  return buffers;
}

void FillBuffers(const Call& call, Buffers& buffers) {
  if (call.rank == call.root) FillUnwritten(buffers.output);
  Fill(buffers.input, {{buffers.input.numel(), 0, DataOf(call.rank)}});
}

void Start(c10d::ProcessGroup& group, const Call& call, Buffers& buffers,
           Works& works) {
  std::vector<std::vector<at::Tensor>> outputs;
  if (call.rank == call.root) outputs.push_back(buffers.output_parts);
  c10d::GatherOptions options;
  options.rootRank = call.root;
  works.push_back(group.gather(outputs, buffers.input_parts, options));
}

std::optional<WrongElement> Check(const Call& call, const Buffers& buffers) {
  if (call.rank != call.root) return std::nullopt;
  std::vector<PatternRun> parts;
  for (int rank = 0; rank < call.world_size; ++rank) {
    parts.push_back({call.count / call.world_size, 0, DataOf(rank)});
  }
  return FindWrong(buffers.output, parts);
}

}  // namespace

constinit const Collective kGather = {
    .name = "gather",
    .summary = "the root gets the buffers of all, one after the other",
    .rooted = true,
    .granularity = [](int n) { return int64_t{n}; },
    .bus_factor = [](int n) { return 1.0 * (n - 1) / n; },
    .make = Make,
    .fill = FillBuffers,
    .start = Start,
    .check = Check,
};

}  // namespace rankwise::comm_bench
