#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <utility>

#include "absl/algorithm/container.h"
#include "analysis/prediction/recordings.h"
#include "analysis/runs/cell.h"
#include "analysis/stats/statistics.h"

namespace rankwise {
namespace {

struct Total {
  double seconds = 0;
  double count = 0;

  void Add(double more) {
    seconds += more;
    ++count;
  }
  double Mean() const { return count == 0 ? 0 : seconds / count; }
};

// Accumulates the measured timelines of a run, over all steps and replicas.
class StageReader {
 public:
  StageReader(int64_t stages, int64_t places)
      : kinds_(stages), place_of_(stages, -1), busy_(places) {}

  void Add(const TimelineRecord& timeline, int64_t place) {
    if (timeline.origin != "measured") return;
    double busy = 0;
    for (const RecordedSpan& span : timeline.spans) {
      const size_t kind = std::string("FBIW").find(span.action);
      if (span.action.size() != 1 || kind == std::string::npos ||
          span.stage < 0 || span.stage >= static_cast<int64_t>(kinds_.size()))
        continue;
      const double seconds = span.end_seconds - span.start_seconds;
      kinds_[span.stage][kind].Add(seconds);
      place_of_[span.stage] = place;
      busy += seconds;
    }
    busy_[place].Add(busy);
  }

  // Whether every stage has a forward and a backward.
  bool complete() const {
    return absl::c_all_of(kinds_, [](const Kinds& kinds) {
      return kinds[kForward].count > 0 &&
             kinds[kBackward].count + kinds[kWeightGrad].count > 0;
    });
  }
  bool cuts_backward() const { return kinds_[0][kWeightGrad].count > 0; }
  // Returns the computation per step of the rank at this place.
  double busy_seconds(int64_t place) const { return busy_[place].Mean(); }
  const std::vector<int64_t>& place_of() const { return place_of_; }

  // Returns the costs for micro-batches that take `factor` times as long as
  // recorded.
  StageCosts Costs(int64_t stage, double factor) const {
    const Kinds& kinds = kinds_[stage];
    StageCosts costs;
    costs.forward_seconds = kinds[kForward].Mean() * factor;
    costs.input_grad_seconds = kinds[kInputGrad].Mean() * factor;
    costs.weight_grad_seconds = kinds[kWeightGrad].Mean() * factor;
    costs.backward_seconds =
        kinds[kWeightGrad].count > 0
            ? costs.input_grad_seconds + costs.weight_grad_seconds
            : kinds[kBackward].Mean() * factor;
    return costs;
  }

 private:
  enum Kind { kForward, kBackward, kInputGrad, kWeightGrad };
  using Kinds = std::array<Total, 4>;
  std::vector<Kinds> kinds_;       // [stage]
  std::vector<int64_t> place_of_;  // [stage]
  std::vector<Total> busy_;        // [place]
};

using Steps = std::map<int64_t, SchedulesOfStep>;

// Returns the schedule records of one replica's ranks by place; empty unless
// all are there with all their micro-batches.
std::vector<const ScheduleRecord*> SchedulesOf(
    const SchedulesOfStep& step, int64_t replica,
    const RecordedPipeline& pipeline) {
  std::vector<const ScheduleRecord*> schedules;
  for (int64_t place = 0; place < pipeline.pp; ++place) {
    const auto found = step.find({replica, place});
    if (found == step.end() ||
        found->second->micro_batches != pipeline.micro_batches) {
      return {};
    }
    schedules.push_back(found->second);
  }
  return schedules;
}

// Timelines exist for a few steps: they determine how a rank's computation is
// distributed over its actions; every step's schedule record determines its
// amount.
std::vector<RecordedStages> StepsFrom(const Steps& steps,
                                      const StageReader& reader,
                                      const RecordedPipeline& pipeline) {
  std::vector<RecordedStages> result;
  for (int64_t replica = 0; replica < pipeline.dp; ++replica) {
    for (const auto& [number, step] : steps) {
      const std::vector<const ScheduleRecord*> schedules =
          SchedulesOf(step, replica, pipeline);
      if (schedules.empty()) continue;
      RecordedStages& recorded = result.emplace_back();
      for (int64_t stage = 0; stage < pipeline.stages; ++stage) {
        const int64_t place = reader.place_of()[stage];
        const double usual = reader.busy_seconds(place);
        recorded.stages.push_back(reader.Costs(
            stage, usual > 0 ? schedules[place]->busy_seconds / usual : 1));
      }
      for (const ScheduleRecord* schedule : schedules) {
        recorded.span_seconds =
            std::max(recorded.span_seconds, schedule->span_seconds);
      }
    }
  }
  return result;
}

// Returns the ranks of all replicas at one place of the pipeline.
std::vector<const RankTrace*> RanksAt(const RunTrace& run, int64_t place) {
  std::vector<const RankTrace*> ranks;
  for (const RankTrace& rank : run.ranks) {
    if (rank.schedules[0].pipeline_rank == place) ranks.push_back(&rank);
  }
  return ranks;
}

void ReadPlace(const std::vector<const RankTrace*>& ranks, const Steps& steps,
               const ThroughputConfig& config, RecordedPipeline* pipeline) {
  std::vector<double> outside, optimizer;
  double peak = 0;
  int64_t activations = 0;
  for (const RankTrace* rank : ranks) {
    const ScheduleRecord& first = rank->schedules[0];
    for (const ScheduleRecord& schedule : rank->schedules) {
      activations = std::max(activations, schedule.peak_activations);
    }
    for (const StepRecord& step : MeasuredSteps(*rank, config)) {
      optimizer.push_back(step.optimizer_seconds);
      const SchedulesOfStep& schedules = steps.at(step.step);
      const auto schedule =
          schedules.find({first.replica, first.pipeline_rank});
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

// Returns a rank's all-reduces with the ranks of its place in other replicas.
std::vector<double> GradientBytes(const RunTrace& run, const RankTrace& rank) {
  std::vector<double> bytes;
  if (rank.traffic.empty()) return bytes;
  const int64_t place = rank.schedules[0].pipeline_rank;
  const auto is_here = [&](int64_t other) {
    return other >= 0 && other < static_cast<int64_t>(run.ranks.size()) &&
           run.ranks[other].schedules[0].pipeline_rank == place;
  };
  for (const RecordedTransfer& event : rank.traffic.back().events) {
    if (event.op == "all_reduce" && event.ranks.size() > 1 &&
        absl::c_all_of(event.ranks, is_here)) {
      bytes.push_back(event.bytes);
    }
  }
  return bytes;
}

// Sets the bytes and duration of messages between stages. A boundary carries
// the same bytes in both directions. With one stage per rank, the ranks' bytes
// determine each boundary's; otherwise all boundaries are assumed equal.
void SetMessages(const RunTrace& run, const std::vector<int64_t>& place_of,
                 RecordedPipeline* pipeline) {
  std::vector<double> sent;
  double total = 0, seconds = 0;
  for (int64_t place = 0; place < pipeline->pp; ++place) {
    const ScheduleRecord& schedule = RanksAt(run, place)[0]->schedules.back();
    sent.push_back(schedule.sent_bytes);
    total += sent.back();
    seconds += schedule.transfer_seconds;
  }
  const double m = pipeline->micro_batches;
  double boundaries = 0;  // between stages on different ranks
  for (size_t stage = 0; stage + 1 < place_of.size(); ++stage) {
    boundaries += place_of[stage] != place_of[stage + 1];
  }
  const double messages = 2 * m * boundaries;
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

// Whether each place of each replica is one process, and the records agree on
// the pipeline. Several stages in one process do not behave like a pipeline's
// rank.
bool HasOneProcessPerPlace(const RunTrace& run,
                           const RecordedPipeline& pipeline) {
  const int64_t ranks = run.ranks.size();
  if (pipeline.pp < 2 || pipeline.pp > ranks || pipeline.dp < 1 ||
      pipeline.dp > ranks || pipeline.pp * pipeline.dp != ranks) {
    return false;
  }
  return absl::c_all_of(run.ranks, [&](const RankTrace& rank) {
    return !rank.schedules.empty() &&
           absl::c_all_of(rank.schedules, [&](const ScheduleRecord& schedule) {
             const ScheduleRecord& first = rank.schedules[0];
             return schedule.pipeline_size == pipeline.pp &&
                    schedule.replicas == pipeline.dp &&
                    schedule.stages == pipeline.stages &&
                    schedule.pipeline_rank == first.pipeline_rank &&
                    schedule.replica == first.replica &&
                    first.pipeline_rank >= 0 &&
                    first.pipeline_rank < pipeline.pp && first.replica >= 0 &&
                    first.replica < pipeline.dp;
           });
  });
}

// Whether every rank has whole chunks of stages, each with a span.
bool HasAllStages(const RunTrace& run, const RecordedPipeline& pipeline) {
  int64_t spans = 0;
  for (const RankTrace& rank : run.ranks) {
    for (const TimelineRecord& timeline : rank.timelines) {
      spans += timeline.spans.size();
    }
  }
  return pipeline.stages >= pipeline.pp && pipeline.stages <= spans &&
         pipeline.stages % pipeline.pp == 0;
}

std::optional<RecordedPipeline> Collect(const RunTrace& run,
                                        const ThroughputConfig& config) {
  if (run.ranks[0].schedules.empty()) return std::nullopt;
  const ScheduleRecord& schedule = run.ranks[0].schedules.back();
  RecordedPipeline pipeline;
  pipeline.schedule = schedule.schedule;
  pipeline.pp = schedule.pipeline_size;
  pipeline.dp = schedule.replicas;
  pipeline.stages = schedule.stages;
  pipeline.micro_batches = schedule.micro_batches;
  if (pipeline.micro_batches < 1 || !HasOneProcessPerPlace(run, pipeline) ||
      !HasAllStages(run, pipeline))
    return std::nullopt;
  pipeline.micro_batch_examples =
      ExamplesPerStep(run, config) / pipeline.micro_batches;
  const absl::StatusOr<Throughput> throughput = MeasureThroughput(run, config);
  if (throughput.ok()) pipeline.step_seconds = throughput->step_seconds;
  StageReader reader(pipeline.stages, pipeline.pp);
  for (const RankTrace& rank : run.ranks) {
    for (const TimelineRecord& timeline : rank.timelines) {
      reader.Add(timeline, rank.schedules[0].pipeline_rank);
    }
  }
  if (!reader.complete()) return std::nullopt;
  pipeline.cuts_backward = reader.cuts_backward();
  const absl::StatusOr<Steps> steps = SchedulesByStep(run, config);
  if (!steps.ok()) return std::nullopt;  // two ranks have the same place
  pipeline.steps = StepsFrom(*steps, reader, pipeline);
  if (pipeline.steps.empty()) return std::nullopt;
  for (int64_t place = 0; place < pipeline.pp; ++place) {
    const std::vector<const RankTrace*> ranks = RanksAt(run, place);
    ReadPlace(ranks, *steps, config, &pipeline);
    if (pipeline.dp > 1 && !ranks[0]->traffic.empty()) {
      pipeline.gradient_bytes.push_back(GradientBytes(run, *ranks[0]));
    }
  }
  SetMessages(run, reader.place_of(), &pipeline);
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
