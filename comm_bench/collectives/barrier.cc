// Every rank waits until all have come.
#include "comm_bench/collectives/entries.h"
#include "torch/csrc/distributed/c10d/Backend.hpp"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace rankwise::comm_bench {
namespace {

Buffers Make(const Call&) { return {}; }

void FillBuffers(const Call&, Buffers&) {}

// Past ProcessGroup::barrier, which keeps a tensor in a static variable and so
// cannot be called where ranks are threads.
void Start(c10d::ProcessGroup& group, const Call& call, Buffers&,
           Works& works) {
  c10d::BarrierOptions options;
  options.device = call.device;
  works.push_back(group.getBackend(call.device.type())->barrier(options));
}

std::optional<WrongElement> Check(const Call&, const Buffers&) {
  return std::nullopt;
}

}  // namespace

constinit const Collective kBarrier = {
    .name = "barrier",
    .summary = "every rank waits until all have come",
    .has_elements = false,
    .in_place = false,
    .replayable = true,
    .make = Make,
    .fill = FillBuffers,
    .start = Start,
    .check = Check,
};

}  // namespace rankwise::comm_bench
