// Measures the overlap of a collective with matrix products.

#include "comm_bench/modes/overlap.h"

#include <cstdint>

#include "comm_bench/flags/flags.h"
#include "comm_bench/output/output.h"
#include "comm_bench/question.h"
#include "comm_bench/sweep/run_sweep.h"
#include "third_party/absl/status_macros.h"

namespace rankwise::comm_bench {
namespace {

// Measures each collective of the sweep at each size, in the group of all
// ranks.
absl::Status RunOverlaps(const BenchConfig& config, const Plan& plan,
                         const BenchRank& rank) {
  PrintLeftOut(plan, rank);
  OverlapConfig overlap;
  overlap.gemm_size = config.gemm_size;
  overlap.iterations = config.iterations_or(overlap.iterations);
  int64_t rows = 0;
  for (const SweepCase& item : plan.cases) {
    for (const SizedCall& next : CallsOf(item, config, plan)) {
      rank.output->Print(next.note);
      if (next.repeats) continue;
      Call call = next.call;
      call.rank = rank.rank();
      call.device = rank.device;
      const OverlapResult result =
          RunOverlap(*rank.group, *rank.control, *item.collective, call,
                     overlap, rank.stop);
      if (!result.ranks.empty()) {
        RETURN_IF_ERROR(rank.output->Write(result.own));
        rank.output->Print(FormatOverlap(result));
        ++rows;
      }
      if (result.stopped) return Interrupted(rows, "row");
    }
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace rankwise::comm_bench

int main(int argc, char** argv) {
  namespace bench = rankwise::comm_bench;
  return bench::Answer(
      {.name = "overlap",
       .usage = "Measures collectives next to matrix products.\n"
                "  bazel run //comm_bench:overlap -- --nproc=2 --sizes=1M\n",
       .flags = {bench::ReadSamples, bench::ReadCalls, bench::ReadSizes,
                 bench::ReadGemmSize, bench::ReadFake},
       .plan = bench::MakeOverlapPlan,
       .measure = bench::RunOverlaps},
      argc, argv);
}
