#include "analysis/runs/pipeline_use.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "analysis/stats/statistics.h"
#include "third_party/absl/status_macros.h"

namespace rankwise {
namespace {

using Place = std::pair<int64_t, int64_t>;  // replica, pipeline rank
using StepOfPlaces = std::map<Place, const ScheduleRecord*>;

// The records of every step after warm-up, in order of the steps.
using Steps = std::map<int64_t, StepOfPlaces>;

absl::Status Fail(const RunTrace& run, const std::string& reason) {
  return absl::FailedPreconditionError(absl::StrCat(run.source, ": ", reason));
}

absl::StatusOr<Steps> StepsAfterWarmUp(const RunTrace& run,
                                       int64_t warmup_steps) {
  const std::vector<StepRecord>& taken = run.ranks[0].steps;
  Steps steps;
  for (size_t i = warmup_steps; i < taken.size(); ++i) steps[taken[i].step];
  for (const RankTrace& trace : run.ranks) {
    for (const ScheduleRecord& record : trace.schedules) {
      const auto step = steps.find(record.step);
      if (step == steps.end()) continue;
      const Place place(record.replica, record.pipeline_rank);
      if (!step->second.emplace(place, &record).second) {
        return Fail(
            run, absl::StrCat("step ", record.step,
                              " has two schedule records of replica ",
                              place.first, ", pipeline rank ", place.second));
      }
    }
  }
  return steps;
}

absl::Status CheckStep(const RunTrace& run, int64_t step,
                       const StepOfPlaces& places,
                       const ScheduleRecord& shape) {
  const int64_t expected = shape.replicas * shape.pipeline_size;
  if (static_cast<int64_t>(places.size()) != expected) {
    return Fail(
        run,
        absl::StrCat("step ", step, " has the schedule records of ",
                     places.size(), " places in its pipelines, of ", expected));
  }
  for (const auto& [place, record] : places) {
    if (record->pipeline_size != shape.pipeline_size ||
        record->schedule != shape.schedule) {
      return Fail(run, absl::StrCat("step ", step,
                                    " ran different schedules on its ranks"));
    }
    if (!(record->schedule_seconds > 0) || !(record->span_seconds > 0)) {
      return Fail(run, absl::StrCat("the schedule of step ", step, " on rank ",
                                    record->rank, " took no time"));
    }
  }
  return absl::OkStatus();
}

// The median of those that are known; NaN where none is.
double KnownMedian(std::vector<double> sample) {
  sample.erase(std::remove_if(sample.begin(), sample.end(),
                              [](double x) { return std::isnan(x); }),
               sample.end());
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
    use.peak_activations = std::max(
        use.peak_activations, static_cast<double>(record.peak_activations));
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

StepUse MeasureStep(const StepOfPlaces& places) {
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
    // NaN only where no rank knows it.
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
    std::vector<double> sample;
    for (const StepUse& use : uses) sample.push_back(use.*metric);
    return sample;
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

double PipelineUse::PredictionError() const {
  return predicted_seconds / schedule_seconds - 1;
}

absl::StatusOr<PipelineUse> MeasurePipelineUse(const RunTrace& run,
                                               const ThroughputConfig& config) {
  RETURN_IF_ERROR(CheckRun(run));
  if (run.ranks[0].schedules.empty()) {
    return Fail(run, "the run has no schedule records");
  }
  ASSIGN_OR_RETURN(const auto steps,
                   StepsAfterWarmUp(run, config.warmup_steps));
  if (steps.empty()) return Fail(run, "no step is left after warm-up");
  const ScheduleRecord& shape = run.ranks[0].schedules[0];
  for (const auto& [step, places] : steps) {
    RETURN_IF_ERROR(CheckStep(run, step, places, shape));
  }
  PipelineUse result;
  result.schedule = shape.schedule;
  result.pipeline_size = shape.pipeline_size;
  result.replicas = shape.replicas;
  result.stages = shape.stages;
  result.micro_batches = shape.micro_batches;
  for (const auto& [place, record] : steps.begin()->second) {
    result.ranks.push_back(MeasurePlace(steps, place));
  }
  MeasureSteps(steps, &result);
  return result;
}

}  // namespace rankwise
