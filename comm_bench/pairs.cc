// Measures latency and bandwidth between all pairs of ranks, and detects a slow
// rank.

#include <optional>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "comm_bench/flags/flags.h"
#include "comm_bench/modes/pair_matrix.h"
#include "comm_bench/output/output.h"
#include "comm_bench/question.h"
#include "comm_bench/sweep/run_sweep.h"
#include "records/text.h"
#include "third_party/absl/status_macros.h"

ABSL_FLAG(std::string, sizes, "",
          "separated by commas: the first for latency, the last for bandwidth");

namespace rankwise::comm_bench {
namespace {

void ReadOwn(BenchConfig& config, FlagChecks& checks) {
  const std::string sizes = absl::GetFlag(FLAGS_sizes);
  config.sizes_given = !sizes.empty();
  if (!config.sizes_given) return;
  config.sizes =
      ReadText<std::vector<int64_t>>("sizes", sizes, ParseByteList, {}, checks);
}

PairConfig PairsOf(const BenchConfig& config, c10::Device device) {
  PairConfig pairs;
  pairs.device = device;
  if (config.sizes_given) {
    pairs.latency_bytes = config.sizes.front();
    pairs.bandwidth_bytes = config.sizes.back();
  }
  pairs.iterations = config.iterations_or(pairs.iterations);
  return pairs;
}

// Prints nothing for two ranks: their times cannot show which one is slow.
void PrintStraggler(const PairMatrix& matrix, const BenchRank& rank) {
  if (rank.world_size() < 3) return;
  const std::optional<Straggler> straggler = FindStraggler(matrix);
  rank.output->Print(straggler.has_value()
                         ? absl::StrCat("rank ", straggler->rank,
                                        " stands out: its messages take ",
                                        straggler->delay_seconds * 1e6,
                                        " us longer\n")
                         : "no rank stands out\n");
}

absl::Status RunPairs(const BenchConfig& config, const Plan&,
                      const BenchRank& rank) {
  const PairMatrix matrix = MeasurePairs(
      *rank.group, *rank.control, PairsOf(config, rank.device), rank.stop);
  for (const CollectiveRecord& samples : matrix.samples)
    RETURN_IF_ERROR(rank.output->Write(samples));
  rank.output->Print(FormatPairMatrix(matrix));
  if (matrix.stopped) return Interrupted(matrix.pairs, "pair");
  PrintStraggler(matrix, rank);
  return absl::OkStatus();
}

}  // namespace
}  // namespace rankwise::comm_bench

int main(int argc, char** argv) {
  namespace bench = rankwise::comm_bench;
  return bench::Answer(
      {.name = "pairs",
       .usage = "Measures latency and bandwidth between every two ranks.\n"
                "  bazel run //comm_bench:pairs -- --nproc=4\n",
       .flags = {bench::ReadSamples, bench::ReadFake, bench::ReadVirtualTime,
                 bench::ReadOwn},
       .plan = bench::MakePairsPlan,
       .measure = bench::RunPairs},
      argc, argv);
}
