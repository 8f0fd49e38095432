#include "comm_bench/modes/modes.h"

#include <cstdint>
#include <exception>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "comm_bench/collectives/collective.h"
#include "comm_bench/collectives/collectives.h"
#include "comm_bench/collectives/counted.h"
#include "comm_bench/modes/ladder.h"
#include "comm_bench/modes/mode_records.h"
#include "comm_bench/modes/overlap.h"
#include "comm_bench/modes/pair_matrix.h"
#include "comm_bench/modes/replay.h"
#include "comm_bench/output/output.h"
#include "comm_bench/sweep/measure.h"
#include "comm_bench/sweep/measure_on.h"
#include "comm_bench/sweep/sweep.h"
#include "comm_bench/timing/device_sync.h"
#include "comm_bench/timing/timing.h"
#include "parallel/comm/communicator.h"
#include "records/record.h"
#include "torch/csrc/distributed/c10d/Backend.hpp"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace rankwise::comm_bench {
namespace {

absl::Status NeedsProcesses(const BenchConfig& config) {
  return absl::InvalidArgumentError(absl::StrCat(
      "--mode=", config.mode,
      ": not with --backend=fake, whose ranks are threads without a job"));
}

absl::Status Interrupted(int64_t count, const char* what) {
  return absl::CancelledError(
      absl::StrCat("interrupted; ", Counted(count, what),
                   count == 1 ? " was measured" : " were measured"));
}

// Why a group could not be made, on its way out of the timing engine.
struct NoGroup : std::exception {
  explicit NoGroup(absl::Status why) : status(std::move(why)) {}
  absl::Status status;
};

// Connections included: Gloo has made them when NewGroup returns, NCCL makes
// them in the group's first collective.
void MakeGroup(const BenchRank& rank, int64_t index,
               const std::vector<int>& ranks) {
  const auto group = rank.comm->NewGroup(absl::StrCat("timed", index), ranks);
  if (!group.ok()) throw NoGroup(group.status());
  if (!rank.device.is_cuda()) return;
  c10d::BarrierOptions options;
  options.device = rank.device;
  (*group)->getBackend(rank.device.type())->barrier(options)->wait();
  SynchronizeDevice(rank.device);
}

absl::StatusOr<TimingConfig> TimingOfGroups(const BenchConfig& config) {
  constexpr int64_t kUsual = 10, kMost = 100;
  TimingConfig timing = config.measure.timing;
  if (timing.warmup < 0) timing.warmup = 1;
  if (timing.iterations == 0) timing.iterations = kUsual;
  if (timing.iterations <= kMost - timing.warmup) return timing;
  return absl::InvalidArgumentError(absl::StrCat(
      "--iterations=", timing.iterations, " --warmup=", timing.warmup,
      ": --mode=new_group makes at most ", kMost,
      " groups, as each stays open until the end"));
}

// How long it takes to make a group of all ranks.
absl::Status RunNewGroup(const BenchConfig& config, const BenchRank& rank) {
  if (rank.comm == nullptr) return NeedsProcesses(config);
  const absl::StatusOr<TimingConfig> timing = TimingOfGroups(config);
  if (!timing.ok()) return timing.status();
  std::vector<int> everybody(rank.world_size());
  std::iota(everybody.begin(), everybody.end(), 0);
  Series series;
  try {
    series = TimeIterations(
        *rank.control,
        [&](int64_t index) { MakeGroup(rank, index, everybody); }, *timing,
        rank.stop);
  } catch (const NoGroup& failure) {
    return failure.status;
  }
  Row row;
  row.collective = "new_group";
  row.layer = "c10d";
  row.group_size = rank.world_size();
  if (series.iterations() > 0) {
    const Measurement measured = Assemble(row, series, rank.rank(), /*calls=*/1,
                                          /*bus_factor=*/1, config.measure);
    absl::Status added = rank.output->Add(measured.row, measured.samples);
    if (!added.ok()) return added;
  }
  if (series.end == Series::End::kInterrupted)
    return Interrupted(series.iterations(), "group");
  rank.output->PrintLegend();
  return absl::OkStatus();
}

PairConfig PairsOf(const BenchConfig& config, c10::Device device) {
  PairConfig pairs;
  pairs.device = device;
  if (config.sizes_given) {
    pairs.latency_bytes = config.sizes.front();
    pairs.bandwidth_bytes = config.sizes.back();
  }
  if (config.measure.timing.iterations > 0)
    pairs.iterations = config.measure.timing.iterations;
  return pairs;
}

// Nothing below three ranks.
absl::Status ShowStraggler(const PairMatrix& matrix, const BenchRank& rank) {
  if (rank.world_size() < 3) return absl::OkStatus();
  const auto straggler = FindStraggler(matrix);
  if (!straggler.ok()) return straggler.status();
  rank.output->Print(straggler->has_value()
                         ? absl::StrCat("rank ", (*straggler)->rank,
                                        " stands out: its messages take ",
                                        (*straggler)->delay_seconds * 1e6,
                                        " us longer\n")
                         : "no rank stands out\n");
  return absl::OkStatus();
}

absl::Status RunPairs(const BenchConfig& config, const BenchRank& rank) {
  if (rank.world_size() < 2)
    return absl::InvalidArgumentError("--mode=pairs: needs at least 2 ranks");
  const absl::StatusOr<PairMatrix> matrix = MeasurePairs(
      *rank.group, *rank.control, PairsOf(config, rank.device), rank.stop);
  if (!matrix.ok()) return matrix.status();
  for (const PairMatrix::Samples& samples : matrix->samples) {
    absl::Status written = rank.output->Write(
        RecordOf(samples, rank.rank(), config.measure.launch));
    if (!written.ok()) return written;
  }
  rank.output->Print(FormatPairMatrix(*matrix));
  if (matrix->stopped) return Interrupted(matrix->pairs, "pair");
  return ShowStraggler(*matrix, rank);
}

// What has samples.
absl::Status Keep(const LadderResult& ladder, const BenchConfig& config,
                  const BenchRank& rank) {
  if (ladder.rungs.empty()) return absl::OkStatus();
  const absl::StatusOr<const Collective*> all_reduce =
      FindCollective("all_reduce");
  if (!all_reduce.ok()) return all_reduce.status();
  const double bus_factor = (*all_reduce)->bus_factor(ladder.world_size);
  for (const LadderRung& rung : ladder.rungs) {
    const Measurement measured =
        Assemble(RowOf(ladder, rung), rung.series, rank.rank(), /*calls=*/1,
                 bus_factor, config.measure);
    absl::Status written = rank.output->Write(measured.samples);
    if (!written.ok()) return written;
  }
  rank.output->Print(FormatLadder(ladder));
  return absl::OkStatus();
}

absl::Status RunLadders(const BenchConfig& config, const BenchRank& rank) {
  if (rank.comm == nullptr) return NeedsProcesses(config);
  const absl::StatusOr<MeasureConfig> measure = MeasureOn(rank.device, config);
  if (!measure.ok()) return measure.status();
  int64_t rungs = 0;
  for (const int64_t bytes : config.sizes) {
    const auto element = static_cast<int64_t>(sizeof(float));
    if (bytes % element != 0) {
      rank.output->Print(absl::StrCat(
          "# ", Counted(bytes, "byte"), ": measured as ",
          (bytes / element + 1) * element, ", rounded to whole elements\n"));
    }
    const absl::StatusOr<LadderResult> ladder =
        RunLadder(*rank.comm, *rank.control, bytes, measure->timing, rank.stop,
                  measure->events);
    if (!ladder.ok()) return ladder.status();
    absl::Status kept = Keep(*ladder, config, rank);
    if (!kept.ok()) return kept;
    rungs += static_cast<int64_t>(ladder->rungs.size());
    if (ladder->stopped) return Interrupted(rungs, "rung");
  }
  return absl::OkStatus();
}

OverlapConfig OverlapOf(const BenchConfig& config) {
  OverlapConfig overlap;
  overlap.gemm_size = config.gemm_size;
  if (config.measure.timing.iterations > 0)
    overlap.iterations = config.measure.timing.iterations;
  return overlap;
}

// Each collective of the sweep at each size.
absl::Status RunOverlaps(const BenchConfig& config, const BenchRank& rank) {
  const absl::StatusOr<std::vector<SweepCall>> calls = PlanCalls(config, rank);
  if (!calls.ok()) return calls.status();
  int64_t rows = 0;
  for (const SweepCall& item : *calls) {
    const OverlapResult result =
        RunOverlap(*rank.group, *rank.control, *item.collective, item.call,
                   OverlapOf(config), rank.stop);
    const OverlapRecord record = RecordOf(result, rank.rank());
    if (!record.both_seconds.empty()) {
      absl::Status written = rank.output->Write(record);
      if (!written.ok()) return written;
      rank.output->Print(FormatOverlap(result));
      ++rows;
    }
    if (result.stopped) return Interrupted(rows, "row");
  }
  return absl::OkStatus();
}

absl::Status RunReplay(const BenchConfig& config, const BenchRank& rank) {
  if (rank.comm == nullptr) return NeedsProcesses(config);
  ReplayConfig replay;
  replay.file = config.replay_file;
  if (config.measure.timing.iterations > 0)
    replay.iterations = config.measure.timing.iterations;
  const absl::StatusOr<ReplayResult> result =
      Replay(*rank.comm, *rank.control, replay, rank.stop);
  if (!result.ok()) return result.status();
  for (const auto& [layer, samples] :
       {std::pair("gaps", &result->own_gaps),
        std::pair("back_to_back", &result->own_back_to_back)}) {
    absl::Status written = rank.output->Write(
        RecordOf(*samples, result->stopped, layer, rank.rank(),
                 rank.world_size(), config.measure.launch));
    if (!written.ok()) return written;
  }
  rank.output->Print(FormatReplay(*result));
  if (result->stopped) return Interrupted(result->iterations, "iteration");
  return absl::OkStatus();
}

}  // namespace

absl::Status RunMode(const BenchConfig& config, const BenchRank& rank) {
  if (config.mode == "new_group") return RunNewGroup(config, rank);
  if (config.mode == "ladder") return RunLadders(config, rank);
  if (config.mode == "overlap") return RunOverlaps(config, rank);
  if (config.mode == "replay") return RunReplay(config, rank);
  if (config.mode == "pairs") return RunPairs(config, rank);
  return RunSweep(config, rank);
}

}  // namespace rankwise::comm_bench
