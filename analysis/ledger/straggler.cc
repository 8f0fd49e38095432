#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "analysis/ledger/ledger.h"
#include "analysis/stats/statistics.h"
#include "third_party/absl/status_macros.h"

namespace rankwise {
namespace {

constexpr double kChance = 0.05;          // of a false alarm; 1 - confidence
constexpr double kWorthReporting = 0.01;  // of the step
constexpr size_t kBatches = 16;           // over all runs
constexpr size_t kShortestBatch = 5;      // steps
constexpr size_t kFewestBatches = 3;

// A rank, or a stage of a process that runs several.
struct Compared {
  int64_t rank = 0;
  int64_t stage = 0;  // compared with those of the same stage
  // Of each batch of steps, all runs in a row, the median own time.
  std::vector<double> batch_seconds = {};
};

// What is compared over all runs.
struct Batches {
  std::vector<Compared> compared;
  std::vector<size_t> run_ends;  // in batch_seconds
  std::vector<double> step_seconds;
};

int64_t StageOf(const RunTrace& run, const LedgerPlace& place) {
  if (place.stage != -1) return place.stage;
  const auto& schedules = run.ranks[place.rank].schedules;
  return schedules.empty() ? 0 : schedules[0].pipeline_rank;
}

double MedianOwnSeconds(absl::Span<const LedgerParts> steps) {
  std::vector<double> seconds;
  seconds.reserve(steps.size());
  for (const LedgerParts& parts : steps) {
    seconds.push_back(parts.compute_seconds + parts.data_wait_seconds);
  }
  return Median(seconds);
}

absl::Status AddRun(const RunTrace& run, const std::vector<LedgerPlace>& places,
                    size_t batches, Batches& all) {
  std::vector<Compared> of_run;
  for (const LedgerPlace& place : places) {
    of_run.push_back({place.rank, StageOf(run, place)});
  }
  if (all.run_ends.empty()) all.compared = of_run;
  if (!absl::c_equal(of_run, all.compared,
                     [](const Compared& a, const Compared& b) {
                       return a.rank == b.rank && a.stage == b.stage;
                     })) {
    return RunError(
        run,
        "its ranks and stages are not those of the repetitions before it; were "
        "different configurations given as one?");
  }
  for (size_t i = 0; i < places.size(); ++i) {
    const auto steps = absl::MakeSpan(places[i].steps);
    for (size_t batch = 0; batch < batches; ++batch) {
      const size_t begin = batch * steps.size() / batches;
      const size_t end = (batch + 1) * steps.size() / batches;
      all.compared[i].batch_seconds.push_back(
          MedianOwnSeconds(steps.subspan(begin, end - begin)));
    }
  }
  all.run_ends.push_back(all.compared[0].batch_seconds.size());
  return absl::OkStatus();
}

absl::StatusOr<Batches> ReadBatches(absl::Span<const RunTrace* const> runs,
                                    const ThroughputConfig& config) {
  Batches all;
  for (const RunTrace* run : runs) {
    RETURN_IF_ERROR(CheckMeasurable(*run, config));
    absl::c_move(JobStepSeconds(*run, config),
                 std::back_inserter(all.step_seconds));
  }
  const size_t length =
      std::max(kShortestBatch, all.step_seconds.size() / kBatches);
  for (const RunTrace* run : runs) {
    ASSIGN_OR_RETURN(const std::vector<LedgerPlace> places,
                     ReadPlaces(*run, config.warmup_steps));
    const size_t batches = std::max<size_t>(1, places[0].steps.size() / length);
    RETURN_IF_ERROR(AddRun(*run, places, batches, all));
  }
  return all;
}

// Per batch, what `one` takes beyond the median of those of its stage; empty
// where it is the only one.
std::vector<double> DelaysOf(const Compared& one,
                             absl::Span<const Compared> compared) {
  std::vector<double> delays;
  for (size_t batch = 0; batch < one.batch_seconds.size(); ++batch) {
    std::vector<double> others;
    for (const Compared& other : compared) {
      if (other.stage == one.stage && other.rank != one.rank) {
        others.push_back(other.batch_seconds[batch]);
      }
    }
    if (others.empty()) return {};
    delays.push_back(one.batch_seconds[batch] - Median(others));
  }
  return delays;
}

bool IsSlowerInEveryRun(absl::Span<const double> delays,
                        const std::vector<size_t>& run_ends) {
  size_t begin = 0;
  for (size_t end : run_ends) {
    if (Mean(delays.subspan(begin, end - begin)) <= 0) return false;
    begin = end;
  }
  return true;
}

}  // namespace

absl::StatusOr<std::optional<Straggler>> FindStraggler(
    absl::Span<const RunTrace* const> runs, const ThroughputConfig& config) {
  ASSIGN_OR_RETURN(const Batches all, ReadBatches(runs, config));
  Straggler slowest;
  std::vector<double> delays;
  size_t candidates = 0;
  for (const Compared& one : all.compared) {
    std::vector<double> of_one = DelaysOf(one, all.compared);
    if (of_one.size() < kFewestBatches) continue;
    const double seconds = Mean(of_one);
    if (++candidates > 1 && seconds <= slowest.seconds) continue;
    slowest.rank = one.rank;
    slowest.seconds = seconds;
    delays = std::move(of_one);
  }
  if (candidates == 0) return std::nullopt;
  const int degrees_of_freedom = static_cast<int>(delays.size()) - 1;
  const double error =
      StandardDeviation(delays) / std::sqrt(static_cast<double>(delays.size()));
  const auto half_width = [&](double p) {
    return StudentTwoSidedQuantile(p, degrees_of_freedom) * error;
  };
  slowest.interval = {slowest.seconds - half_width(kChance),
                      slowest.seconds + half_width(kChance)};
  slowest.share = slowest.seconds / Median(all.step_seconds);
  // The largest of several delays: the bound of Bonferroni.
  const double least =
      slowest.seconds - half_width(kChance / static_cast<double>(candidates));
  if (least <= 0 || slowest.share < kWorthReporting ||
      !IsSlowerInEveryRun(delays, all.run_ends)) {
    return std::nullopt;
  }
  return slowest;
}

}  // namespace rankwise
