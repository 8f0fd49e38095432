#include "comm_bench/modes.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "comm_bench/ladder.h"
#include "comm_bench/measure.h"
#include "comm_bench/output.h"
#include "comm_bench/overlap.h"
#include "comm_bench/pair_matrix.h"
#include "comm_bench/replay.h"
#include "comm_bench/sweep.h"
#include "comm_bench/timing.h"
#include "parallel/comm/communicator.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace rankwise {
namespace {

absl::Status NeedsProcesses(const BenchConfig& config) {
  return absl::InvalidArgumentError(absl::StrCat(
      "--mode=", config.mode,
      ": not with --backend=fake, whose ranks are threads without a job"));
}

// How long it takes to make a group of all ranks, connections included.
absl::Status RunNewGroup(const BenchConfig& config, const BenchRank& rank) {
  if (rank.comm == nullptr) return NeedsProcesses(config);
  constexpr int64_t kGroups = 10;  // each stays open until the end
  TimingConfig timing = config.measure.timing;
  timing.warmup = 1;
  if (timing.iterations == 0) timing.iterations = kGroups;
  std::vector<int> everybody(rank.world_size());
  for (int i = 0; i < rank.world_size(); ++i) everybody[i] = i;
  absl::Status status;
  const Series series = TimeIterations(
      *rank.control,
      [&](int64_t index) {
        status.Update(
            rank.comm->NewGroup(absl::StrCat("timed", index), everybody)
                .status());
      },
      timing, rank.stop);
  if (!status.ok()) return status;
  Row row;
  row.collective = "new_group";
  row.layer = "c10d";
  const Measurement measured = Assemble(row, series, rank.rank(), /*calls=*/1,
                                        /*bus_factor=*/1, config.measure);
  return rank.output->Add(measured.row, measured.samples);
}

// Messages between this rank and a higher one, timed here.
CollectiveRecord RecordOf(const PairMatrix::Samples& samples, int rank) {
  CollectiveRecord record;
  record.rank = rank;
  record.collective = "ping_pong";
  record.ranks = {rank, samples.peer};
  record.bytes = record.count = samples.bytes;
  record.dtype = "uint8";
  record.sync = "none";
  record.seconds = samples.seconds;
  // One after the other; the answer takes as long as the message.
  double start = 0;
  for (const double half_trip : samples.seconds) {
    record.start_seconds.push_back(start);
    start += 2 * half_trip;
  }
  return record;
}

absl::Status RunPairs(const BenchConfig& config, const BenchRank& rank) {
  if (rank.world_size() < 2)
    return absl::InvalidArgumentError("--mode=pairs: needs at least 2 ranks");
  PairConfig pairs;
  pairs.device = rank.device;
  if (config.measure.timing.iterations > 0)
    pairs.iterations = config.measure.timing.iterations;
  const absl::StatusOr<PairMatrix> matrix =
      MeasurePairs(*rank.group, *rank.control, pairs, rank.stop);
  if (!matrix.ok()) return matrix.status();
  rank.output->Print(FormatPairMatrix(*matrix));
  for (const PairMatrix::Samples& samples : matrix->samples) {
    absl::Status written = rank.output->Write(RecordOf(samples, rank.rank()));
    if (!written.ok()) return written;
  }
  if (rank.world_size() < 3) return absl::OkStatus();
  const auto straggler = FindStraggler(*matrix);
  if (!straggler.ok()) return straggler.status();
  rank.output->Print(straggler->has_value()
                         ? absl::StrCat("rank ", (*straggler)->rank,
                                        " stands out: its messages take ",
                                        (*straggler)->delay_seconds * 1e6,
                                        " us longer\n")
                         : "no rank stands out\n");
  return absl::OkStatus();
}

absl::Status RunLadders(const BenchConfig& config, const BenchRank& rank) {
  if (rank.comm == nullptr) return NeedsProcesses(config);
  for (const int64_t bytes : config.sizes) {
    const absl::StatusOr<LadderResult> ladder =
        RunLadder(*rank.comm, *rank.control, bytes, config.measure.timing);
    if (!ladder.ok()) return ladder.status();
    rank.output->Print(FormatLadder(*ladder));
    for (const LadderRung& rung : ladder->rungs) {
      Row row;
      row.collective = "all_reduce";
      row.layer = rung.name;
      row.bytes = ladder->bytes;
      row.count = ladder->bytes / static_cast<int64_t>(sizeof(float));
      row.dtype = "float32";
      row.op = "sum";
      row.in_place = true;
      absl::Status written = rank.output->Write(
          Assemble(row, rung.series, rank.rank(), 1, 1, config.measure)
              .samples);
      if (!written.ok()) return written;
    }
    if (*rank.stop) break;
  }
  return absl::OkStatus();
}

// Each collective of the sweep at each size.
absl::Status RunOverlaps(const BenchConfig& config, const BenchRank& rank) {
  const absl::StatusOr<std::vector<SweepCall>> calls = PlanCalls(config, rank);
  if (!calls.ok()) return calls.status();
  OverlapConfig overlap;
  overlap.gemm_size = config.gemm_size;
  if (config.measure.timing.iterations > 0)
    overlap.iterations = config.measure.timing.iterations;
  for (const SweepCall& item : *calls) {
    const OverlapResult result =
        RunOverlap(*rank.group, *rank.control, *item.collective, item.call,
                   overlap, rank.stop);
    if (*rank.stop) break;
    rank.output->Print(FormatOverlap(result));
    absl::Status written = rank.output->Write(RecordOf(result, rank.rank()));
    if (!written.ok()) return written;
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
  rank.output->Print(FormatReplay(*result));
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

}  // namespace rankwise
