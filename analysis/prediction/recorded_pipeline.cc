#include "analysis/prediction/recorded_pipeline.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>

#include "analysis/prediction/recorded_runs.h"
#include "analysis/statistics.h"

namespace rankwise {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Sum and number of one stage's actions of one kind.
struct Total {
  double seconds = 0;
  double count = 0;

  double Mean() const { return count == 0 ? 0 : seconds / count; }
};

// The actions of one step of one replica, rank after rank.
class StepReader {
 public:
  explicit StepReader(int64_t stages) : totals_(stages) {}

  void Add(const TimelineRecord& timeline) {
    for (const RecordedSpan& span : timeline.spans) {
      const size_t kind = std::string("FBIW").find(span.action);
      if (span.action.size() != 1 || kind == std::string::npos ||
          span.stage >= static_cast<int64_t>(totals_.size()))
        continue;
      Total& total = totals_[span.stage][kind];
      total.seconds += span.end_seconds - span.start_seconds;
      total.count += 1;
      first_ = std::min(first_, span.start_seconds);
      last_ = std::max(last_, span.end_seconds);
    }
  }

  bool cuts_backward() const { return totals_[0][kWeightGrad].count > 0; }

  // None where a stage has no forward or no backward.
  std::optional<RecordedStages> Take() const {
    RecordedStages step;
    for (const auto& kinds : totals_) {
      StageCosts costs;
      costs.forward_seconds = kinds[kForward].Mean();
      costs.input_grad_seconds = kinds[kInputGrad].Mean();
      costs.weight_grad_seconds = kinds[kWeightGrad].Mean();
      costs.backward_seconds =
          kinds[kWeightGrad].count > 0
              ? costs.input_grad_seconds + costs.weight_grad_seconds
              : kinds[kBackward].Mean();
      if (kinds[kForward].count == 0 ||
          kinds[kBackward].count + kinds[kWeightGrad].count == 0)
        return std::nullopt;
      step.stages.push_back(costs);
    }
    step.wall_seconds = last_ - first_;
    return step;
  }

 private:
  enum Kind { kForward, kBackward, kInputGrad, kWeightGrad };
  struct Kinds {
    Total of[4];
    Total& operator[](size_t kind) { return of[kind]; }
    const Total& operator[](size_t kind) const { return of[kind]; }
  };
  std::vector<Kinds> totals_;  // [stage]
  double first_ = kInfinity, last_ = -kInfinity;
};

// Every step and replica whose ranks all have a measured timeline.
std::vector<RecordedStages> StepsFrom(const RunTrace& run, int64_t first_step,
                                      RecordedPipeline* pipeline) {
  std::map<std::pair<int64_t, int64_t>, std::vector<const TimelineRecord*>>
      found;  // by step and replica
  for (const RankTrace& rank : run.ranks) {
    for (const TimelineRecord& timeline : rank.timelines) {
      if (timeline.origin != "measured" || timeline.step < first_step) continue;
      found[{timeline.step, rank.schedules[0].replica}].push_back(&timeline);
    }
  }
  std::vector<RecordedStages> steps;
  for (const auto& [where, timelines] : found) {
    if (static_cast<int64_t>(timelines.size()) != pipeline->pp) continue;
    StepReader reader(pipeline->stages);
    for (const TimelineRecord* timeline : timelines) reader.Add(*timeline);
    std::optional<RecordedStages> step = reader.Take();
    if (!step.has_value()) continue;
    pipeline->cuts_backward = reader.cuts_backward();
    steps.push_back(*std::move(step));
  }
  return steps;
}

// The ranks of all replicas at one place of the pipeline.
std::vector<const RankTrace*> RanksAt(const RunTrace& run, int64_t place) {
  std::vector<const RankTrace*> ranks;
  for (const RankTrace& rank : run.ranks) {
    if (rank.schedules[0].pipeline_rank == place) ranks.push_back(&rank);
  }
  return ranks;
}

void ReadPlace(const std::vector<const RankTrace*>& ranks,
               const ThroughputConfig& config, RecordedPipeline* pipeline) {
  std::vector<double> outside, optimizer;
  double peak = 0;
  int64_t activations = 0;
  for (const RankTrace* rank : ranks) {
    std::map<int64_t, const ScheduleRecord*> schedules;
    for (const ScheduleRecord& schedule : rank->schedules) {
      schedules[schedule.step] = &schedule;
      activations = std::max(activations, schedule.peak_activations);
    }
    for (size_t i = config.warmup_steps; i < rank->steps.size(); ++i) {
      const StepRecord& step = rank->steps[i];
      optimizer.push_back(step.optimizer_seconds);
      const auto schedule = schedules.find(step.step);
      if (schedule == schedules.end()) continue;
      outside.push_back(std::max(0.0, step.step_seconds -
                                          schedule->second->schedule_seconds -
                                          step.exposed_comm_seconds));
    }
    peak = std::max(peak, PeakBytes(*rank));
  }
  pipeline->outside_seconds.push_back(outside.empty() ? 0 : Median(outside));
  pipeline->optimizer_seconds.push_back(Median(optimizer));
  pipeline->peak_bytes.push_back(peak);
  pipeline->peak_activations.push_back(activations);
}

// All-reduces of a rank with those of its place in other replicas.
std::vector<double> GradientBytes(const RunTrace& run, const RankTrace& rank) {
  std::vector<double> bytes;
  if (rank.traffic.empty()) return bytes;
  const int64_t place = rank.schedules[0].pipeline_rank;
  const auto is_here = [&](int64_t other) {
    return run.ranks[other].schedules[0].pipeline_rank == place;
  };
  for (const RecordedTransfer& event : rank.traffic.back().events) {
    if (event.op == "all_reduce" && event.ranks.size() > 1 &&
        std::all_of(event.ranks.begin(), event.ranks.end(), is_here)) {
      bytes.push_back(static_cast<double>(event.bytes));
    }
  }
  return bytes;
}

// Boundaries between stages that lie on two ranks.
int64_t Crossings(const RunTrace& run, int64_t stages) {
  std::vector<int64_t> place_of(stages, 0);
  for (const RankTrace& rank : run.ranks) {
    for (const TimelineRecord& timeline : rank.timelines) {
      for (const RecordedSpan& span : timeline.spans) {
        if (span.stage < stages)
          place_of[span.stage] = rank.schedules[0].pipeline_rank;
      }
    }
  }
  int64_t crossings = 0;
  for (int64_t stage = 0; stage + 1 < stages; ++stage) {
    crossings += place_of[stage] != place_of[stage + 1];
  }
  return crossings;
}

// What stages hand on, and how long that takes. A boundary carries as much one
// way as the other. With one stage per rank the ranks' bytes tell the
// boundaries apart, else all are taken to be alike.
void SetMessages(const RunTrace& run, RecordedPipeline* pipeline) {
  std::vector<double> sent;
  double total = 0, seconds = 0;
  for (int64_t place = 0; place < pipeline->pp; ++place) {
    const ScheduleRecord& schedule = RanksAt(run, place)[0]->schedules.back();
    sent.push_back(static_cast<double>(schedule.sent_bytes));
    total += sent.back();
    seconds += schedule.transfer_seconds;
  }
  const double m = static_cast<double>(pipeline->micro_batches);
  const double messages =
      2 * m * static_cast<double>(Crossings(run, pipeline->stages));
  if (messages == 0) return;
  pipeline->message_seconds = seconds / messages;
  std::vector<double> outputs(pipeline->stages, total / messages);
  if (pipeline->stages == pipeline->pp) {
    double before = 0;
    for (int64_t stage = 0; stage + 1 < pipeline->stages; ++stage) {
      outputs[stage] = before = std::max(0.0, sent[stage] / m - before);
    }
  }
  for (RecordedStages& step : pipeline->steps) {
    for (int64_t stage = 0; stage < pipeline->stages; ++stage) {
      step.stages[stage].output_bytes = outputs[stage];
    }
  }
}

std::optional<RecordedPipeline> Collect(const RunTrace& run,
                                        const ThroughputConfig& config) {
  for (const RankTrace& rank : run.ranks) {
    if (rank.schedules.empty()) return std::nullopt;
  }
  const ScheduleRecord& schedule = run.ranks[0].schedules.back();
  RecordedPipeline pipeline;
  pipeline.source = run.source;
  pipeline.schedule = schedule.schedule;
  pipeline.pp = schedule.pipeline_size;
  pipeline.dp = schedule.replicas;
  pipeline.stages = schedule.stages;
  pipeline.micro_batches = schedule.micro_batches;
  // Several stages in one process are not what a rank of a pipeline does.
  if (pipeline.pp * pipeline.dp != run.ranks[0].run.world_size ||
      pipeline.pp < 2)
    return std::nullopt;
  pipeline.micro_batch_examples = ExamplesPerStep(run, config) /
                                  static_cast<double>(pipeline.micro_batches);
  const int64_t first = run.ranks[0].steps[0].step;
  pipeline.steps = StepsFrom(run, first + config.warmup_steps, &pipeline);
  if (pipeline.steps.empty()) pipeline.steps = StepsFrom(run, first, &pipeline);
  if (pipeline.steps.empty()) return std::nullopt;
  for (int64_t place = 0; place < pipeline.pp; ++place) {
    const std::vector<const RankTrace*> ranks = RanksAt(run, place);
    ReadPlace(ranks, config, &pipeline);
    if (pipeline.dp > 1 && !ranks[0]->traffic.empty()) {
      pipeline.gradient_bytes.push_back(GradientBytes(run, *ranks[0]));
    }
  }
  SetMessages(run, &pipeline);
  return pipeline;
}

}  // namespace

std::vector<RecordedPipeline> CollectPipelines(
    absl::Span<const RunTrace* const> runs, const ThroughputConfig& config) {
  std::vector<RecordedPipeline> pipelines;
  for (const RunTrace* run : runs) {
    if (std::optional<RecordedPipeline> pipeline = Collect(*run, config)) {
      pipelines.push_back(*std::move(pipeline));
    }
  }
  return pipelines;
}

}  // namespace rankwise
