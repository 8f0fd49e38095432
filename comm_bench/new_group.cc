// Measures the creation of a process group.

#include <cstdint>
#include <numeric>
#include <vector>

#include "absl/strings/str_cat.h"
#include "comm_bench/flags/flags.h"
#include "comm_bench/output/output.h"
#include "comm_bench/question.h"
#include "comm_bench/sweep/measure.h"
#include "comm_bench/sweep/run_sweep.h"
#include "comm_bench/timing/agreement.h"
#include "parallel/comm/communicator.h"
#include "parallel/device/device_event.h"
#include "third_party/absl/status_macros.h"
#include "torch/csrc/distributed/c10d/Backend.hpp"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace rankwise::comm_bench {
namespace {

// Includes connections: Gloo connects in NewGroup, NCCL in the group's first
// collective.
absl::Status MakeGroup(const BenchRank& rank, int64_t index,
                       const std::vector<int>& ranks) {
  ASSIGN_OR_RETURN(const auto group,
                   rank.comm->NewGroup(absl::StrCat("timed", index), ranks));
  if (!rank.device.is_cuda()) return absl::OkStatus();
  c10d::BarrierOptions options;
  options.device = rank.device;
  group.process_group()
      ->getBackend(rank.device.type())
      ->barrier(options)
      ->wait();
  SynchronizeDevice(rank.device);
  return absl::OkStatus();
}

// Measures the creation of a group of all ranks.
absl::Status RunNewGroup(const BenchConfig& config, const Plan&,
                         const BenchRank& rank) {
  TimingConfig timing = TimingOfGroups(config);
  std::vector<int> everybody(rank.world_size());
  std::iota(everybody.begin(), everybody.end(), 0);
  absl::Status made;
  timing.failure = &made;
  const Series series = TimeIterations(
      *rank.control,
      [&](int64_t index) {
        if (made.ok()) made = MakeGroup(rank, index, everybody);
      },
      timing, rank.stop);
  RETURN_IF_ERROR(AllOk(*rank.control, made, "make a group"));
  CallDescription call;
  call.collective = "new_group";
  call.bus_factor = 1;
  call.group_size = rank.world_size();
  if (series.iterations() > 0) {
    RETURN_IF_ERROR(
        rank.output->Add(Assemble(call, series, rank.rank(), config.measure)));
  }
  if (series.end == Series::End::kInterrupted)
    return Interrupted(series.iterations(), "group");
  rank.output->PrintLegend();
  return absl::OkStatus();
}

}  // namespace
}  // namespace rankwise::comm_bench

int main(int argc, char** argv) {
  namespace bench = rankwise::comm_bench;
  return bench::Answer(
      {.name = "new_group",
       .usage = "Measures the creation of a process group of all ranks.\n"
                "  bazel run //comm_bench:new_group -- --nproc=4\n",
       .flags = {bench::ReadSamples, bench::ReadSync, bench::ReadArrivals,
                 bench::ReadRows},
       .plan = bench::MakeNewGroupPlan,
       .measure = bench::RunNewGroup},
      argc, argv);
}
