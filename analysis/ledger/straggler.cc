#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <map>
#include <optional>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "analysis/ledger/ledger.h"
#include "analysis/stats/statistics.h"
#include "third_party/absl/status_macros.h"

namespace rankwise {
namespace {

// probability of a false alarm; 1 - confidence
constexpr double kChance = 0.05;
constexpr double kWorthReporting = 0.01;  // minimum share of the step
constexpr size_t kBatches = 10;           // batches per single run
constexpr size_t kShortestBatch = 5;      // steps per batch
constexpr size_t kFewestBatches = 3;

// A rank, or one stage of a process with several.
struct Compared {
  int64_t rank = 0;
  int64_t stage = 0;  // only ranks of the same stage are compared
  // Median own time per run, or per batch of steps if there is a single run.
  std::vector<double> own_seconds = {};
};

int64_t StageOf(const RunTrace& run, const LedgerPlace& place) {
  if (place.stage != -1) return place.stage;
  const auto& schedules = run.ranks[place.rank].schedules;
  return schedules.empty() ? 0 : schedules[0].pipeline_rank;
}

double MedianOwnSeconds(absl::Span<const LedgerParts> steps) {
  return Median(NumbersOf(steps, [](const LedgerParts& parts) {
    return parts.compute_seconds + parts.data_wait_seconds;
  }));
}

absl::Status AddRun(const RunTrace& run, const std::vector<LedgerPlace>& places,
                    size_t batches, std::vector<Compared>& all) {
  std::vector<Compared> of_run;
  for (const LedgerPlace& place : places) {
    of_run.push_back({place.rank, StageOf(run, place)});
  }
  if (all.empty()) all = of_run;
  if (!absl::c_equal(of_run, all, [](const Compared& a, const Compared& b) {
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
      all[i].own_seconds.push_back(
          MedianOwnSeconds(steps.subspan(begin, end - begin)));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Compared>> ReadCompared(
    absl::Span<const RunTrace* const> runs, const ThroughputConfig& config) {
  std::vector<Compared> all;
  for (const RunTrace* run : runs) {
    ASSIGN_OR_RETURN(const std::vector<LedgerPlace> places,
                     ReadPlaces(*run, config.warmup_steps));
    const size_t steps = places[0].steps.size();
    const size_t length = std::max(kShortestBatch, steps / kBatches);
    RETURN_IF_ERROR(
        AddRun(*run, places, runs.size() > 1 ? 1 : steps / length, all));
  }
  return all;
}

// Returns the delays of `one` relative to the median of the other ranks of its
// stage, per run or batch; empty if there are no others.
std::vector<double> DelaysOf(const Compared& one,
                             absl::Span<const Compared> compared) {
  std::vector<double> delays;
  for (size_t i = 0; i < one.own_seconds.size(); ++i) {
    std::vector<double> others;
    for (const Compared& other : compared) {
      if (other.stage == one.stage && other.rank != one.rank) {
        others.push_back(other.own_seconds[i]);
      }
    }
    if (others.empty()) return {};
    delays.push_back(one.own_seconds[i] - Median(others));
  }
  return delays;
}

// Returns the rank with the largest delay; sets Straggler::rank, seconds and
// least_seconds.
std::optional<Straggler> FindSlowest(absl::Span<const Compared> compared) {
  struct Slowest {
    int64_t stage = 0;
    double variance = 0;  // of its delays
  };
  std::optional<Straggler> straggler;
  Slowest slowest;
  double candidates = 0, sample = 0;
  std::map<int64_t, std::vector<double>> variances;  // of delays, by stage
  for (const Compared& one : compared) {
    const std::vector<double> delays = DelaysOf(one, compared);
    if (delays.size() < 2) continue;
    const double variance = std::pow(StandardDeviation(delays), 2);
    variances[one.stage].push_back(variance);
    sample = static_cast<double>(delays.size());
    const double seconds = Mean(delays);
    if (++candidates > 1 && seconds <= straggler->seconds) continue;
    straggler = Straggler{.rank = one.rank, .seconds = seconds};
    slowest = {one.stage, variance};
  }
  if (!straggler.has_value()) return std::nullopt;
  // A few runs estimate one rank's variance badly, so the ranks' mean variance
  // is used unless the rank's own is larger.
  const std::vector<double>& of_stage = variances[slowest.stage];
  const double variance = std::max(slowest.variance, Mean(of_stage));
  const double freedom =
      (sample - 1) * (static_cast<double>(of_stage.size()) - 1);
  // One-sided, with Bonferroni's correction for the choice of the largest.
  straggler->least_seconds =
      straggler->seconds -
      StudentTwoSidedQuantile(2 * kChance / candidates, freedom) *
          std::sqrt(variance / sample);
  return straggler;
}

}  // namespace

absl::StatusOr<std::optional<Straggler>> FindStraggler(
    absl::Span<const RunTrace* const> runs, const ThroughputConfig& config) {
  std::vector<double> step_seconds;
  for (const RunTrace* run : runs) {
    RETURN_IF_ERROR(CheckMeasurable(*run, config));
    absl::c_move(JobStepSeconds(*run, config),
                 std::back_inserter(step_seconds));
  }
  ASSIGN_OR_RETURN(const std::vector<Compared> compared,
                   ReadCompared(runs, config));
  if (runs.empty() ||
      (runs.size() == 1 && compared[0].own_seconds.size() < kFewestBatches)) {
    return std::nullopt;
  }
  std::optional<Straggler> slowest = FindSlowest(compared);
  if (!slowest.has_value()) return std::nullopt;
  slowest->runs = runs.size();
  slowest->share = slowest->seconds / Median(step_seconds);
  if (!(slowest->least_seconds > 0) || slowest->share < kWorthReporting) {
    return std::nullopt;
  }
  return slowest;
}

}  // namespace rankwise
