#include "comm_bench/modes/modes.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "comm_bench/modes/ladder.h"
#include "comm_bench/modes/overlap.h"
#include "comm_bench/modes/pair_matrix.h"
#include "comm_bench/modes/replay.h"
#include "comm_bench/modes/units.h"
#include "comm_bench/nccl/layer.h"
#include "comm_bench/output/output.h"
#include "comm_bench/sweep/measure.h"
#include "comm_bench/sweep/run_sweep.h"
#include "comm_bench/timing/agreement.h"
#include "parallel/comm/communicator.h"
#include "parallel/device/device_event.h"
#include "records/text.h"
#include "third_party/absl/status_macros.h"
#include "torch/csrc/distributed/c10d/Backend.hpp"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace rankwise::comm_bench {
namespace {

// Connections included: Gloo has made them when NewGroup returns, NCCL makes
// them in the group's first collective.
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

// How long it takes to make a group of all ranks.
absl::Status RunNewGroup(const BenchConfig& config, const BenchRank& rank) {
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

// --iterations, or `usual` without it.
int64_t Iterations(const BenchConfig& config, int64_t usual) {
  const int64_t given = config.measure.timing.iterations;
  return given > 0 ? given : usual;
}

PairConfig PairsOf(const BenchConfig& config, c10::Device device) {
  PairConfig pairs;
  pairs.device = device;
  if (config.sizes_given()) {
    pairs.latency_bytes = config.sizes.front();
    pairs.bandwidth_bytes = config.sizes.back();
  }
  pairs.iterations = Iterations(config, pairs.iterations);
  return pairs;
}

// Nothing below three ranks.
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

absl::Status RunPairs(const BenchConfig& config, const BenchRank& rank) {
  PairMatrix matrix = MeasurePairs(*rank.group, *rank.control,
                                   PairsOf(config, rank.device), rank.stop);
  for (CollectiveRecord& samples : matrix.samples) {
    samples.launch = config.measure.launch;
    RETURN_IF_ERROR(rank.output->Write(samples));
  }
  rank.output->Print(FormatPairMatrix(matrix));
  if (matrix.stopped) return Interrupted(matrix.pairs, "pair");
  PrintStraggler(matrix, rank);
  return absl::OkStatus();
}

// What has samples.
absl::Status Keep(const LadderResult& ladder, const BenchConfig& config,
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

absl::Status RunLadders(const BenchConfig& config, const BenchRank& rank) {
  const MeasureConfig measure = MeasureOn(rank.device, config);
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
    RETURN_IF_ERROR(Keep(ladder, config, rank));
    rungs += static_cast<int64_t>(ladder.rungs.size());
    if (ladder.stopped) return Interrupted(rungs, "rung");
  }
  return absl::OkStatus();
}

// Each collective of the sweep at each size, in the group of all ranks.
absl::Status RunOverlaps(const BenchConfig& config, const Plan& plan,
                         const BenchRank& rank) {
  PrintLeftOut(plan, rank);
  OverlapConfig overlap;
  overlap.gemm_size = config.gemm_size;
  overlap.iterations = Iterations(config, overlap.iterations);
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

absl::Status RunReplay(const BenchConfig& config, const Plan& plan,
                       const BenchRank& rank) {
  if (!config.axis.empty()) {
    rank.output->Print(
        absl::StrCat("# only what groups along ", config.axis,
                     " communicated is replayed; "
                     "the trainer's columns are of all its communication\n"));
  }
  ASSIGN_OR_RETURN(ReplayResult result,
                   Replay(*rank.comm, *rank.control, *plan.recorded,
                          Iterations(config, 20), rank.stop));
  for (CollectiveRecord* samples :
       {&result.own_gaps, &result.own_back_to_back}) {
    samples->launch = config.measure.launch;
    RETURN_IF_ERROR(rank.output->Write(*samples));
  }
  rank.output->Print(FormatReplay(result));
  if (result.stopped) return Interrupted(result.iterations, "iteration");
  return absl::OkStatus();
}

// The row of a unit's call by itself.
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

// The rows of all sizes, one collective after the other.
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
  steps.iterations = Iterations(config, steps.iterations);
  UnitsResult result =
      RunUnits(*rank.group, *rank.control, units, steps, rank.stop);
  if (result.iterations == 0)
    return absl::CancelledError("interrupted; no step was measured");
  for (UnitsWay& way : result.ways) {
    way.own.launch = config.measure.launch;
    RETURN_IF_ERROR(rank.output->Write(way.own));
  }
  rank.output->Print(FormatUnits(units, alone, steps, result));
  if (result.stopped) return Interrupted(result.iterations, "step");
  return absl::OkStatus();
}

}  // namespace

absl::Status RunMode(const BenchConfig& config, const Plan& plan,
                     const BenchRank& rank) {
  if (config.mode == "new_group") return RunNewGroup(config, rank);
  if (config.mode == "ladder") return RunLadders(config, rank);
  if (config.mode == "overlap") return RunOverlaps(config, plan, rank);
  if (config.mode == "replay") return RunReplay(config, plan, rank);
  if (config.mode == "pairs") return RunPairs(config, rank);
  if (config.mode == "units") return RunShardedSteps(config, plan, rank);
  return RunSweep(config, plan, rank);
}

}  // namespace rankwise::comm_bench
