// Measures the communication of sharded data parallelism (ZeRO), unit by unit.

#include "comm_bench/modes/units.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/numbers.h"
#include "comm_bench/flags/flags.h"
#include "comm_bench/nccl/layer.h"
#include "comm_bench/output/output.h"
#include "comm_bench/question.h"
#include "comm_bench/sweep/measure.h"
#include "comm_bench/sweep/refuse.h"
#include "comm_bench/sweep/run_sweep.h"
#include "records/command_line.h"
#include "records/text.h"
#include "third_party/absl/status_macros.h"

ABSL_FLAG(std::string, units, "",
          "bytes of each unit's parameters in forward order, such as "
          "33M,12x28M,154M");
ABSL_FLAG(std::string, replay, "",
          "file of the records of //trainers:fsdp, whose units are measured");
ABSL_FLAG(int, zero, 3,
          "1 or 2, which gather each unit once a step, or 3, which gathers it "
          "for forward and for backward");
ABSL_FLAG(int, prefetch, 1, "units gathered ahead of the one that computes");
ABSL_FLAG(std::string, compute_us, "",
          "microseconds that a unit's forward computes, one number or one for "
          "each unit, separated by commas; backward takes twice that");

namespace rankwise::comm_bench {
namespace {

// Parses "33M,12x28M,154M".
absl::StatusOr<std::vector<int64_t>> ParseUnits(const std::string& text) {
  constexpr int64_t kMost = 10'000;
  std::vector<int64_t> units;
  for (const std::string& part : SplitNames(text)) {
    const size_t cross = part.find('x');
    int64_t times = 1;
    if (cross != std::string::npos &&
        (!absl::SimpleAtoi(part.substr(0, cross), &times) || times < 1 ||
         times > kMost)) {
      return Refuse("\"", part, "\" must begin with a number of units ",
                    "between 1 and ", kMost, ", as 12x28M does");
    }
    ASSIGN_OR_RETURN(
        const int64_t bytes,
        ParseBytes(cross == std::string::npos ? part : part.substr(cross + 1)));
    units.insert(units.end(), static_cast<size_t>(times), bytes);
  }
  return units;
}

void ReadOwn(BenchConfig& config, FlagChecks& checks) {
  config.timing = "host";
  if (const std::string units = absl::GetFlag(FLAGS_units); !units.empty())
    config.units =
        ReadText<std::vector<int64_t>>("units", units, ParseUnits, {}, checks);
  config.replay_file = UserPath(absl::GetFlag(FLAGS_replay));
  config.zero = absl::GetFlag(FLAGS_zero);
  checks.InRange("zero", config.zero, 1, 3);
  config.prefetch = absl::GetFlag(FLAGS_prefetch);
  checks.InRange("prefetch", config.prefetch, 0, 1 << 10);
  config.compute_seconds = ReadMicroseconds(
      "compute_us", absl::GetFlag(FLAGS_compute_us), checks, 1e-6);
}

// Measures one call of a unit without other calls; returns the median in
// seconds.
absl::StatusOr<double> MeasureAlone(const Call& call,
                                    const Collective& collective, Layer& layer,
                                    const BenchConfig& config,
                                    const BenchRank& rank) {
  ASSIGN_OR_RETURN(
      const Measurement measured,
      MeasureRow(layer, *rank.control, collective, call, /*ranks=*/{},
                 MeasureOn(rank.device, config), rank.stop));
  const Row& row = measured.row;
  if (!row.record.seconds.empty()) RETURN_IF_ERROR(rank.output->Add(row));
  if (row.end == Series::End::kInterrupted)
    return absl::CancelledError("interrupted; no step was measured");
  if (!measured.wrong.empty()) return absl::DataLossError(measured.wrong);
  return row.time.median;
}

// Measures each distinct size once for each collective.
absl::StatusOr<std::vector<UnitTimes>> MeasureUnits(
    const std::vector<Unit>& units, const BenchConfig& config,
    const BenchRank& rank) {
  const std::unique_ptr<Layer> layer = MakeC10dLayer(rank.group);
  std::vector<UnitTimes> alone(units.size());
  for (const auto& [name, call, seconds] :
       {std::tuple("all_gather", &Unit::gather, &UnitTimes::gather),
        std::tuple("reduce_scatter", &Unit::reduce, &UnitTimes::reduce)}) {
    std::map<int64_t, double> known;  // by bytes
    for (size_t unit = 0; unit < units.size(); ++unit) {
      const Call& next = units[unit].*call;
      const auto [found, is_new] = known.try_emplace(next.bytes(), 0.0);
      if (is_new) {
        ASSIGN_OR_RETURN(
            found->second,
            MeasureAlone(next, **FindCollective(name), *layer, config, rank));
      }
      alone[unit].*seconds = found->second;
    }
  }
  rank.output->PrintLegend();
  return alone;
}

std::vector<Unit> UnitsOf(const BenchConfig& config, const Plan& plan,
                          const BenchRank& rank) {
  const auto call = [&](const char* name, int64_t bytes) {
    Call made =
        CallOf({.collective = *FindCollective(name)}, config, plan, bytes);
    made.rank = rank.rank();
    made.device = rank.device;
    return made;
  };
  std::vector<Unit> units;
  const std::vector<double>& compute = config.compute_seconds;
  for (const int64_t bytes : plan.units) {
    const double seconds =
        compute.empty() ? 0
                        : compute[std::min(units.size(), compute.size() - 1)];
    units.push_back(
        {call("all_gather", bytes), call("reduce_scatter", bytes), seconds});
  }
  return units;
}

absl::Status RunShardedSteps(const BenchConfig& config, const Plan& plan,
                             const BenchRank& rank) {
  const std::vector<Unit> units = UnitsOf(config, plan, rank);
  ASSIGN_OR_RETURN(const std::vector<UnitTimes> alone,
                   MeasureUnits(units, config, rank));
  UnitsConfig steps;
  steps.stage = config.zero;
  steps.prefetch = config.prefetch;
  steps.gemm_size = config.gemm_size;
  steps.iterations = config.iterations_or(steps.iterations);
  const UnitsResult result =
      RunUnits(*rank.group, *rank.control, units, steps, rank.stop);
  if (result.iterations == 0)
    return absl::CancelledError("interrupted; no step was measured");
  for (const UnitsWay& way : result.ways)
    RETURN_IF_ERROR(rank.output->Write(way.own));
  rank.output->Print(FormatUnits(units, alone, steps, result));
  if (result.stopped) return Interrupted(result.iterations, "step");
  return absl::OkStatus();
}

}  // namespace
}  // namespace rankwise::comm_bench

int main(int argc, char** argv) {
  namespace bench = rankwise::comm_bench;
  return bench::Answer(
      {.name = "units",
       .usage =
           "Measures the all-gathers and reduce-scatters of sharded data "
           "parallelism.\n"
           "  bazel run //comm_bench:units -- --nproc=2 --units=2M,4x4M,8M\n",
       .flags = {bench::ReadSamples, bench::ReadRows, bench::ReadPrecision,
                 bench::ReadSync, bench::ReadGemmSize, bench::ReadFake,
                 bench::ReadOwn},
       .plan = bench::MakeUnitsPlan,
       .measure = bench::RunShardedSteps},
      argc, argv);
}
