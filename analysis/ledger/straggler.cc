#include "analysis/ledger/straggler.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
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

  bool SamePlace(const Compared& other) const {
    return rank == other.rank && stage == other.stage;
  }
};

class Search {
 public:
  absl::Status Read(absl::Span<const RunTrace* const> runs,
                    const ThroughputConfig& config);
  std::optional<Straggler> Find() const;

 private:
  absl::Status AddRun(const RunTrace& run,
                      const std::vector<LedgerPlace>& places, size_t batches);
  std::vector<double> DelaysOf(const Compared& one) const;
  bool IsSlowerInEveryRun(const std::vector<double>& delays) const;

  std::vector<Compared> compared_;
  std::vector<size_t> run_ends_;  // in batch_seconds
  std::vector<double> step_seconds_;
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

absl::Status Search::AddRun(const RunTrace& run,
                            const std::vector<LedgerPlace>& places,
                            size_t batches) {
  std::vector<Compared> of_run;
  for (const LedgerPlace& place : places) {
    of_run.push_back({place.rank, StageOf(run, place)});
  }
  if (run_ends_.empty()) compared_ = of_run;
  if (!std::equal(of_run.begin(), of_run.end(), compared_.begin(),
                  compared_.end(), [](const Compared& a, const Compared& b) {
                    return a.SamePlace(b);
                  })) {
    return absl::FailedPreconditionError(absl::StrCat(
        run.source, ": its ranks and stages are not those of the repetitions ",
        "before it; were different configurations given as one?"));
  }
  for (size_t i = 0; i < places.size(); ++i) {
    const auto steps = absl::MakeSpan(places[i].steps);
    for (size_t batch = 0; batch < batches; ++batch) {
      const size_t begin = batch * steps.size() / batches;
      const size_t end = (batch + 1) * steps.size() / batches;
      compared_[i].batch_seconds.push_back(
          MedianOwnSeconds(steps.subspan(begin, end - begin)));
    }
  }
  run_ends_.push_back(compared_[0].batch_seconds.size());
  return absl::OkStatus();
}

absl::Status Search::Read(absl::Span<const RunTrace* const> runs,
                          const ThroughputConfig& config) {
  const size_t first = static_cast<size_t>(config.warmup_steps);
  for (const RunTrace* run : runs) {
    RETURN_IF_ERROR(CheckMeasurable(*run, config));
    const std::vector<double> steps = JobStepSeconds(*run, config);
    step_seconds_.insert(step_seconds_.end(), steps.begin(), steps.end());
  }
  const size_t length =
      std::max(kShortestBatch, step_seconds_.size() / kBatches);
  for (const RunTrace* run : runs) {
    ASSIGN_OR_RETURN(const std::vector<LedgerPlace> places,
                     ReadPlaces(*run, first));
    const size_t steps = places[0].steps.size();
    RETURN_IF_ERROR(AddRun(*run, places, std::max<size_t>(1, steps / length)));
  }
  return absl::OkStatus();
}

// Per batch, what `one` takes beyond the median of those of its stage; empty
// where it is the only one.
std::vector<double> Search::DelaysOf(const Compared& one) const {
  std::vector<double> delays;
  for (size_t batch = 0; batch < one.batch_seconds.size(); ++batch) {
    std::vector<double> others;
    for (const Compared& other : compared_) {
      if (other.stage == one.stage && other.rank != one.rank) {
        others.push_back(other.batch_seconds[batch]);
      }
    }
    if (others.empty()) return {};
    delays.push_back(one.batch_seconds[batch] - Median(others));
  }
  return delays;
}

bool Search::IsSlowerInEveryRun(const std::vector<double>& delays) const {
  size_t begin = 0;
  for (size_t end : run_ends_) {
    if (Mean(absl::MakeSpan(delays).subspan(begin, end - begin)) <= 0) {
      return false;
    }
    begin = end;
  }
  return true;
}

std::optional<Straggler> Search::Find() const {
  Straggler slowest;
  std::vector<double> delays;
  size_t candidates = 0;
  for (const Compared& one : compared_) {
    std::vector<double> of_one = DelaysOf(one);
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
  slowest.share = slowest.seconds / Median(step_seconds_);
  // The largest of several delays: the bound of Bonferroni.
  const double least =
      slowest.seconds - half_width(kChance / static_cast<double>(candidates));
  if (least <= 0 || slowest.share < kWorthReporting) return std::nullopt;
  if (!IsSlowerInEveryRun(delays)) return std::nullopt;
  return slowest;
}

}  // namespace

absl::StatusOr<std::optional<Straggler>> FindStraggler(
    absl::Span<const RunTrace* const> runs, const ThroughputConfig& config) {
  Search search;
  RETURN_IF_ERROR(search.Read(runs, config));
  return search.Find();
}

}  // namespace rankwise
