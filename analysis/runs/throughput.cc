#include "analysis/runs/throughput.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "analysis/stats/statistics.h"
#include "third_party/absl/status_macros.h"

namespace rankwise {
namespace {

// The sums of docs/metrics.md over the measured steps.
struct Sums {
  std::vector<double> examples;    // per step, of all replicas
  std::vector<double> rank_batch;  // per step, of the fullest rank
  double rank_seconds = 0;         // over all ranks
  double exposed_seconds = 0;
  double data_wait_seconds = 0;
  double captured_seconds = 0;
};

Sums SumSteps(const RunTrace& run, size_t first) {
  const int64_t sharing = RanksPerReplica(run);
  Sums sums;
  for (size_t i = first; i < run.ranks[0].steps.size(); ++i) {
    int64_t examples = 0, fullest = 0;
    for (const RankTrace& trace : run.ranks) {
      const StepRecord& step = trace.steps[i];
      examples += step.examples;
      fullest = std::max(fullest, step.examples);
      sums.rank_seconds += step.step_seconds;
      sums.exposed_seconds += step.exposed_comm_seconds;
      sums.data_wait_seconds += step.data_wait_seconds;
      sums.captured_seconds += step.captured_seconds;
    }
    // Every rank of a replica reported the replica's examples.
    sums.examples.push_back(static_cast<double>(examples / sharing));
    sums.rank_batch.push_back(static_cast<double>(fullest) /
                              static_cast<double>(sharing));
  }
  return sums;
}

double Sum(const std::vector<double>& values) {
  double sum = 0;
  for (double value : values) sum += value;
  return sum;
}

}  // namespace

absl::Status CheckMeasurable(const RunTrace& run,
                             const ThroughputConfig& config) {
  RETURN_IF_ERROR(CheckRun(run));
  const std::vector<StepRecord>& steps = run.ranks[0].steps;
  const int64_t recorded = static_cast<int64_t>(steps.size());
  const int64_t measured = recorded - config.warmup_steps;
  if (measured < kMinMeasuredSteps) {
    return absl::FailedPreconditionError(absl::StrCat(
        run.source, ": ", recorded, " steps leave ",
        std::max<int64_t>(measured, 0), " after ", config.warmup_steps,
        " of warm-up, and at least ", kMinMeasuredSteps, " are needed"));
  }
  for (const RankTrace& trace : run.ranks) {
    if (std::any_of(
            trace.steps.begin() + config.warmup_steps, trace.steps.end(),
            [](const StepRecord& step) { return step.step_seconds > 0; })) {
      return absl::OkStatus();
    }
  }
  return absl::FailedPreconditionError(
      absl::StrCat(run.source, ": the steps took no time"));
}

std::vector<double> JobStepSeconds(const RunTrace& run,
                                   const ThroughputConfig& config) {
  std::vector<double> longest;
  for (const RankTrace& trace : run.ranks) {
    std::vector<double> seconds;
    for (size_t i = config.warmup_steps; i < trace.steps.size(); ++i) {
      seconds.push_back(trace.steps[i].step_seconds);
    }
    if (Sum(seconds) > Sum(longest)) longest = std::move(seconds);
  }
  return longest;
}

absl::StatusOr<Throughput> MeasureThroughput(const RunTrace& run,
                                             const ThroughputConfig& config) {
  RETURN_IF_ERROR(CheckMeasurable(run, config));
  const Sums sums = SumSteps(run, config.warmup_steps);
  const std::vector<double> steps = JobStepSeconds(run, config);
  Throughput result;
  result.steps = static_cast<int64_t>(steps.size());
  result.examples_per_second = Sum(sums.examples) / Sum(steps);
  result.step_seconds = Median(steps);
  result.exposed_comm_share = sums.exposed_seconds / sums.rank_seconds;
  result.captured = sums.captured_seconds > 0;
  if (result.captured && run.ranks.size() > 1) {
    result.exposed_comm_share = std::numeric_limits<double>::quiet_NaN();
  }
  result.data_wait_share = sums.data_wait_seconds / sums.rank_seconds;
  result.global_batch = static_cast<int64_t>(Median(sums.examples));
  result.largest_rank_batch = Median(sums.rank_batch);
  return result;
}

}  // namespace rankwise
