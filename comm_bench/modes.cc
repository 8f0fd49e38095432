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
#include "comm_bench/sweep.h"
#include "comm_bench/timing.h"
#include "parallel/comm/communicator.h"

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
  return rank.output->Add(NewGroupRow(series, config),
                          SamplesOf(series, rank, config));
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

}  // namespace

absl::Status RunMode(const BenchConfig& config, const BenchRank& rank) {
  if (config.mode == "new_group") return RunNewGroup(config, rank);
  if (config.mode == "ladder") return RunLadders(config, rank);
  return RunSweep(config, rank);
}

}  // namespace rankwise
