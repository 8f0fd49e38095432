// Measures the cost that each layer of software adds to an all-reduce.

#include "comm_bench/modes/ladder.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "comm_bench/flags/flags.h"
#include "comm_bench/output/output.h"
#include "comm_bench/question.h"
#include "comm_bench/sweep/measure.h"
#include "comm_bench/sweep/run_sweep.h"
#include "records/text.h"
#include "third_party/absl/status_macros.h"

namespace rankwise::comm_bench {
namespace {

// Records and prints the rungs that have samples.
absl::Status RecordRungs(const LadderResult& ladder, const BenchConfig& config,
                         const BenchRank& rank) {
  if (ladder.rungs.empty()) return absl::OkStatus();
  for (const LadderRung& rung : ladder.rungs) {
    const Row row = Assemble(DescribeRung(ladder, rung), rung.series,
                             rank.rank(), config.measure);
    RETURN_IF_ERROR(rank.output->Write(row.record));
  }
  rank.output->Print(FormatLadder(ladder));
  return absl::OkStatus();
}

absl::Status RunLadders(const BenchConfig& config, const Plan&,
                        const BenchRank& rank) {
  const MeasureConfig measure = MeasureLadderOn(rank.device, config);
  int64_t rungs = 0;
  for (const int64_t bytes : config.sizes) {
    const auto element = static_cast<int64_t>(sizeof(float));
    if (bytes % element != 0) {
      rank.output->Print(absl::StrCat(
          "# ", Counted(bytes, "byte"), ": measured as ",
          (bytes / element + 1) * element, ", rounded to whole elements\n"));
    }
    ASSIGN_OR_RETURN(const LadderResult ladder,
                     RunLadder(*rank.comm, *rank.control, bytes, measure.timing,
                               rank.stop, measure.events));
    RETURN_IF_ERROR(RecordRungs(ladder, config, rank));
    rungs += static_cast<int64_t>(ladder.rungs.size());
    if (ladder.stopped) return Interrupted(rungs, "rung");
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace rankwise::comm_bench

int main(int argc, char** argv) {
  namespace bench = rankwise::comm_bench;
  return bench::Answer(
      {.name = "ladder",
       .usage = "Measures what each layer of software adds to an all_reduce.\n"
                "  bazel run //comm_bench:ladder -- --nproc=2 --sizes=4K\n",
       .flags = {bench::ReadSamples, bench::ReadSizes, bench::ReadSync,
                 bench::ReadArrivals, bench::ReadTimer},
       .plan = bench::MakeLadderPlan,
       .measure = bench::RunLadders},
      argc, argv);
}
