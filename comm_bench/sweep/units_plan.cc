// The units of sharded data parallelism to measure: from flags, or from a
// trainer's records.

#include <algorithm>

#include "comm_bench/sweep/plan.h"
#include "comm_bench/sweep/refuse.h"
#include "records/text.h"
#include "third_party/absl/status_macros.h"

namespace rankwise::comm_bench {
namespace {

// Returns the peak bytes of buffers in a step of RunUnits. ZeRO 3: a few
// gathers and reductions of consecutive units. ZeRO 1 and 2: all gathers and a
// few reductions.
int64_t MostAtATime(const BenchConfig& config,
                    const std::vector<int64_t>& units) {
  const auto in_a_row = [&](size_t count) {
    double sum = 0, most = 0;  // sums may exceed int64_t
    for (size_t i = 0; i < units.size(); ++i) {
      sum += static_cast<double>(units[i]);
      if (i >= count) sum -= static_cast<double>(units[i - count]);
      most = std::max(most, sum);
    }
    return most;
  };
  const size_t in_flight = static_cast<size_t>(config.prefetch) + 1;
  const double most = config.zero == 3
                          ? in_a_row(2 * in_flight)
                          : in_a_row(units.size()) + in_a_row(in_flight);
  return static_cast<int64_t>(std::min(most, 0x1p62));
}

// Checks that each reduce-scatter is of a whole unit, once per step, and in the
// benchmark's type.
absl::Status CheckRecordsUnits(const RecordedTraffic& recorded) {
  const auto refuse = [&](const auto&... why) {
    return Refuse(recorded.file, ": ", why..., ", or give --units");
  };
  if (recorded.trainer != "fsdp") {
    return refuse("recorded by ", recorded.trainer,
                  "; record a run of //trainers:fsdp");
  }
  const auto every = recorded.flags.find("reduce_every_microbatch");
  if (every != recorded.flags.end() && every->second == "true") {
    return refuse("recorded with --reduce_every_microbatch, which reduces a ",
                  "unit several times a step; record a run without it");
  }
  for (const RecordedTransfer& event : recorded.steps[0][0].events) {
    if (event.op != "all_gather" && event.op != "reduce_scatter") continue;
    if (event.dtype != "float32") {
      return refuse("holds ", event.op, " of ", event.dtype, ", and units are ",
                    "measured in float32; record a run with ",
                    "--param_dtype=fp32");
    }
    const auto ranks = static_cast<int>(
        GroupOf(event, static_cast<size_t>(recorded.world_size)).size());
    if (ranks != recorded.world_size) {
      return refuse("holds ", event.op, " among ", ranks, " of ",
                    Counted(recorded.world_size, "rank"), ", and units are ",
                    "measured among all; record a run without --shard_ranks");
    }
  }
  return absl::OkStatus();
}

// Backward reduces each unit once, in reverse forward order.
absl::StatusOr<std::vector<int64_t>> RecordedUnits(const std::string& file,
                                                   int world_size) {
  ASSIGN_OR_RETURN(const RecordedTraffic recorded,
                   ReadTraffic(file, world_size));
  RETURN_IF_ERROR(CheckRecordsUnits(recorded));
  std::vector<int64_t> units;
  for (const RecordedTransfer& event : recorded.steps[0][0].events) {
    if (event.op == "reduce_scatter") units.push_back(event.bytes);
  }
  if (units.empty()) {
    return Refuse(file, ": holds no reduce_scatter; record a run of ",
                  "//trainers:fsdp on several ranks, or give --units");
  }
  std::reverse(units.begin(), units.end());
  return units;
}

}  // namespace

absl::StatusOr<Plan> MakeUnitsPlan(const BenchConfig& config, const Job& job) {
  const bool recorded = !config.replay_file.empty();
  if (config.units.empty() != recorded) {
    return Refuse("needs --units, such as 33M,12x28M,154M, or --replay=FILE, ",
                  "records that //trainers:fsdp wrote with --traffic_steps; ",
                  "one of the two");
  }
  RETURN_IF_ERROR(CheckRanks(job));
  Plan plan;
  plan.traffic = TrafficMatrix::Skewed(0, job.world_size);
  plan.units = config.units;
  if (recorded) {
    ASSIGN_OR_RETURN(plan.units,
                     RecordedUnits(config.replay_file, job.world_size));
  }
  RETURN_IF_ERROR(CheckMemory(config, job, recorded ? "--replay" : "--units",
                              MostAtATime(config, plan.units), " at a time"));
  const size_t numbers = config.compute_seconds.size();
  if (numbers < 2 || numbers == plan.units.size()) return plan;
  return Refuse("--compute_us: ", Counted(numbers, "number"), " for ",
                Counted(plan.units.size(), "unit"), "; give one, or one each");
}

}  // namespace rankwise::comm_bench
