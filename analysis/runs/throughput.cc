#include "analysis/runs/throughput.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "analysis/stats/statistics.h"
#include "third_party/absl/status_macros.h"

namespace rankwise {
namespace {

// The sums of docs/metrics.md over the measured steps.
struct Sums {
  std::vector<double> examples;    // per step, of all replicas
  std::vector<double> rank_batch;  // per step, of the fullest rank
  double rank_seconds = 0;         // over all training ranks
  double exposed_seconds = 0;
  double data_wait_seconds = 0;
  double captured_seconds = 0;
};

Sums SumSteps(const RunTrace& run, size_t first) {
  const int64_t sharing = RanksSharingExamples(run);
  const int64_t replicas = ReplicasOf(run.ranks[0].run);
  Sums sums;
  for (size_t i = first; i < run.ranks[0].steps.size(); ++i) {
    int64_t examples = 0, fullest = 0;
    for (const RankTrace& trace : run.ranks) {
      if (Serves(trace)) continue;
      const StepRecord& step = trace.steps[i];
      examples += step.examples;
      fullest = std::max(fullest, step.examples);
      sums.rank_seconds += step.step_seconds;
      sums.exposed_seconds += step.exposed_comm_seconds;
      sums.data_wait_seconds += step.data_wait_seconds;
      sums.captured_seconds += step.captured_seconds;
    }
    // Every rank that shares the examples has reported them.
    sums.examples.push_back(examples / sharing);
    sums.rank_batch.push_back(static_cast<double>(fullest) /
                              (sharing * replicas));
  }
  return sums;
}

double Sum(const std::vector<double>& values) {
  return absl::c_accumulate(values, 0.0);
}

using Place = std::pair<int64_t, int64_t>;  // replica, pipeline rank
using Steps = std::map<int64_t, SchedulesOfStep>;

absl::Status CheckStep(const RunTrace& run, int64_t step,
                       const SchedulesOfStep& places,
                       const ScheduleRecord& shape) {
  const int64_t expected = shape.replicas * shape.pipeline_size;
  if (static_cast<int64_t>(places.size()) != expected) {
    return RunError(
        run,
        absl::StrCat("step ", step, " has the schedule records of ",
                     places.size(), " places in its pipelines, of ", expected));
  }
  for (const auto& [place, record] : places) {
    if (record->pipeline_size != shape.pipeline_size ||
        record->schedule != shape.schedule) {
      return RunError(
          run,
          absl::StrCat("step ", step, " ran different schedules on its ranks"));
    }
    if (!(record->schedule_seconds > 0) || !(record->span_seconds > 0)) {
      return RunError(run,
                      absl::StrCat("the schedule of step ", step, " on rank ",
                                   record->rank, " took no time"));
    }
  }
  return absl::OkStatus();
}

// Returns the median of the known values; NaN without any.
double KnownMedian(std::vector<double> sample) {
  std::erase_if(sample, [](double x) { return std::isnan(x); });
  return Median(sample);
}

PipelineRankUse MeasurePlace(const Steps& steps, const Place& place) {
  std::vector<double> idle, wait;
  PipelineRankUse use;
  use.replica = place.first;
  use.pipeline_rank = place.second;
  for (const auto& [step, places] : steps) {
    const ScheduleRecord& record = *places.at(place);
    idle.push_back(1 - record.busy_seconds / record.schedule_seconds);
    wait.push_back(record.wait_seconds / record.schedule_seconds);
    use.peak_activations =
        std::max<double>(use.peak_activations, record.peak_activations);
  }
  use.idle_share = Median(idle);
  use.wait_share = Median(wait);
  return use;
}

// One step over all ranks of all pipelines.
struct StepUse {
  double seconds = 0, wall_bubble = 0, span_bubble = 0;
  double predicted_seconds = std::nan("");
  double predicted_wall = 0, predicted_span = 0;
  double transfer_seconds = 0, sent_bytes = 0;  // sums
};

StepUse MeasureStep(const SchedulesOfStep& places) {
  std::map<int64_t, double> slowest;  // by replica
  StepUse use;
  for (const auto& [place, record] : places) {
    double& seconds = slowest[place.first];
    seconds = std::max(seconds, record->schedule_seconds);
    use.seconds = std::max(use.seconds, seconds);
  }
  const double ranks = static_cast<double>(places.size());
  for (const auto& [place, record] : places) {
    const double busy = record->busy_seconds;
    use.wall_bubble += (1 - busy / slowest[place.first]) / ranks;
    use.span_bubble += (1 - busy / record->span_seconds) / ranks;
    use.predicted_wall += record->predicted_wall_bubble / ranks;
    use.predicted_span += record->predicted_span_bubble / ranks;
    // NaN only if no rank has a prediction.
    use.predicted_seconds =
        std::fmax(use.predicted_seconds, record->predicted_seconds);
    use.transfer_seconds += record->transfer_seconds;
    use.sent_bytes += static_cast<double>(record->sent_bytes);
  }
  return use;
}

void MeasureSteps(const Steps& steps, PipelineUse* result) {
  std::vector<StepUse> uses;
  for (const auto& [step, places] : steps) uses.push_back(MeasureStep(places));
  const auto values = [&uses](double StepUse::*metric) {
    return NumbersOf(uses, metric);
  };
  result->schedule_seconds = Median(values(&StepUse::seconds));
  result->wall_bubble = Median(values(&StepUse::wall_bubble));
  result->span_bubble = Median(values(&StepUse::span_bubble));
  result->predicted_seconds = KnownMedian(values(&StepUse::predicted_seconds));
  result->predicted_wall_bubble = KnownMedian(values(&StepUse::predicted_wall));
  result->predicted_span_bubble = KnownMedian(values(&StepUse::predicted_span));
  const int64_t boundaries = (result->stages - 1) * result->replicas;
  if (boundaries < 1) return;
  const double count = static_cast<double>(boundaries);
  result->boundary_transfer_seconds =
      Median(values(&StepUse::transfer_seconds)) / count;
  result->boundary_bytes = Median(values(&StepUse::sent_bytes)) / count;
}

}  // namespace

absl::Span<const StepRecord> MeasuredSteps(const RankTrace& rank,
                                           const ThroughputConfig& config) {
  const size_t first = std::min<size_t>(config.warmup_steps, rank.steps.size());
  return absl::MakeSpan(rank.steps).subspan(first);
}

absl::Status CheckMeasurable(const RunTrace& run,
                             const ThroughputConfig& config) {
  RETURN_IF_ERROR(CheckRun(run));
  if (absl::c_all_of(run.ranks, Serves)) {
    return RunError(run, "no rank trains: all are parameter servers");
  }
  const std::vector<StepRecord>& steps = run.ranks[0].steps;
  const int64_t recorded = static_cast<int64_t>(steps.size());
  const int64_t measured = recorded - config.warmup_steps;
  if (measured < kMinMeasuredSteps) {
    return RunError(
        run, absl::StrCat(recorded, " steps leave ",
                          std::max<int64_t>(measured, 0), " after ",
                          config.warmup_steps, " of warm-up, and at least ",
                          kMinMeasuredSteps, " are needed"));
  }
  for (const RankTrace& trace : run.ranks) {
    if (Serves(trace)) continue;
    if (absl::c_any_of(
            MeasuredSteps(trace, config),
            [](const StepRecord& step) { return step.step_seconds > 0; })) {
      return absl::OkStatus();
    }
  }
  return RunError(run, "the steps took no time");
}

std::vector<double> JobStepSeconds(const RunTrace& run,
                                   const ThroughputConfig& config) {
  std::vector<double> longest;
  for (const RankTrace& trace : run.ranks) {
    if (Serves(trace)) continue;
    std::vector<double> seconds =
        NumbersOf(MeasuredSteps(trace, config), &StepRecord::step_seconds);
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
  result.comm_wait_share = sums.exposed_seconds / sums.rank_seconds;
  result.captured = sums.captured_seconds > 0;
  if (result.captured && run.ranks.size() > 1) {
    result.comm_wait_share = std::numeric_limits<double>::quiet_NaN();
  }
  result.data_wait_share = sums.data_wait_seconds / sums.rank_seconds;
  result.global_batch = static_cast<int64_t>(Median(sums.examples));
  result.largest_rank_batch = Median(sums.rank_batch);
  return result;
}

absl::StatusOr<std::map<int64_t, SchedulesOfStep>> SchedulesByStep(
    const RunTrace& run, const ThroughputConfig& config) {
  Steps steps;
  for (const StepRecord& step : MeasuredSteps(run.ranks[0], config)) {
    steps[step.step];
  }
  for (const RankTrace& trace : run.ranks) {
    for (const ScheduleRecord& record : trace.schedules) {
      const auto step = steps.find(record.step);
      if (step == steps.end()) continue;
      const Place place(record.replica, record.pipeline_rank);
      if (!step->second.emplace(place, &record).second) {
        return RunError(
            run, absl::StrCat("step ", record.step,
                              " has two schedule records of replica ",
                              place.first, ", pipeline rank ", place.second));
      }
    }
  }
  return steps;
}

absl::StatusOr<PipelineUse> MeasurePipelineUse(const RunTrace& run,
                                               const ThroughputConfig& config) {
  RETURN_IF_ERROR(CheckRun(run));
  if (run.ranks[0].schedules.empty()) {
    return RunError(run, "the run has no schedule records");
  }
  ASSIGN_OR_RETURN(const Steps steps, SchedulesByStep(run, config));
  if (steps.empty()) return RunError(run, "no step is left after warm-up");
  const ScheduleRecord& shape = run.ranks[0].schedules[0];
  for (const auto& [step, places] : steps) {
    RETURN_IF_ERROR(CheckStep(run, step, places, shape));
  }
  PipelineUse use;
  use.schedule = shape.schedule;
  use.pipeline_size = shape.pipeline_size;
  use.replicas = shape.replicas;
  use.stages = shape.stages;
  use.micro_batches = shape.micro_batches;
  for (const auto& [place, record] : steps.begin()->second) {
    use.ranks.push_back(MeasurePlace(steps, place));
  }
  MeasureSteps(steps, &use);
  return use;
}

}  // namespace rankwise
