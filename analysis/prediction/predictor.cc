#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/prediction/prediction.h"
#include "analysis/prediction/recordings.h"
#include "analysis/runs/cell.h"
#include "analysis/stats/statistics.h"
#include "analysis/text/text_table.h"
#include "parallel/pipeline/schedule/schedule.h"
#include "records/text.h"
#include "third_party/absl/status_macros.h"

namespace rankwise {
namespace {

constexpr int kDraws = 400;
constexpr uint64_t kSeed = 6;
constexpr size_t kMostSamples = 500;  // per run, after thinning
constexpr double kNormal95 = 1.959964;

using Samples = std::vector<StepSample>;

std::vector<Samples> Thinned(absl::Span<const Samples> runs) {
  std::vector<Samples> thinned;
  for (const Samples& run : runs) {
    const size_t stride = (run.size() + kMostSamples - 1) / kMostSamples;
    Samples& kept = thinned.emplace_back();
    for (size_t i = 0; i < run.size(); i += stride) kept.push_back(run[i]);
  }
  return thinned;
}

// Returns the step with communication `z` standard deviations more expensive.
double SecondsWith(const StepSample& sample, double z) {
  const double middle = sample.middle.step_seconds;
  const double side = z < 0 ? middle - sample.low.step_seconds
                            : sample.high.step_seconds - middle;
  return middle + z / kNormal95 * side;
}

std::vector<double> PartOf(const Samples& run, double StepTimes::*part) {
  return NumbersOf(
      run, [part](const StepSample& sample) { return sample.middle.*part; });
}

struct Center {
  double median = 0;  // of the runs' medians
  double noise = 0;   // the slowest rank's excess over it
};

Center CenterOf(const std::vector<std::vector<double>>& runs, int64_t ranks) {
  std::vector<double> medians, deviations;
  for (const std::vector<double>& run : runs) {
    medians.push_back(Median(run));
    for (double value : run) deviations.push_back(value - medians.back());
  }
  Center center;
  center.median = Median(medians);
  if (ranks > 1) {
    const double n = static_cast<double>(ranks);
    const double slowest = Quantile(deviations, std::pow(0.5, 1 / n));
    center.noise = std::max(0.0, slowest - Median(deviations));
  }
  return center;
}

Interval DrawInterval(const std::vector<Samples>& runs, int64_t ranks,
                      const ModelError& error) {
  std::mt19937_64 random(kSeed);
  std::normal_distribution<double> normal;
  const std::vector<double> medians = NumbersOf(runs, [](const Samples& run) {
    return Median(PartOf(run, &StepTimes::step_seconds));
  });
  const double count = static_cast<double>(runs.size());
  const double spread =
      runs.size() < 2 ? 0
                      : StandardDeviation(medians) * std::sqrt(1 + 1 / count);
  std::student_t_distribution<double> student(std::max(1.0, count - 1));
  // Student's t, as few configurations estimate the deviation badly.
  std::student_t_distribution<double> of_model(
      std::max(1, error.degrees_of_freedom));
  std::vector<double> draws;
  for (int i = 0; i < kDraws; ++i) {
    const double z = normal(random);
    std::vector<std::vector<double>> resampled;
    for (const Samples& run : runs) {
      std::uniform_int_distribution<size_t> pick(0, run.size() - 1);
      std::vector<double>& values = resampled.emplace_back();
      for (size_t k = 0; k < run.size(); ++k) {
        values.push_back(SecondsWith(run[pick(random)], z));
      }
    }
    const Center center = CenterOf(resampled, ranks);
    double step = center.median + center.noise;
    if (error.deviation > 0) step *= 1 + error.deviation * of_model(random);
    draws.push_back(step + spread * student(random));
  }
  return {std::max(0.0, Quantile(draws, 0.025)), Quantile(draws, 0.975)};
}

// Bucket sizes to try in addition to the recorded ones.
constexpr double kBucketBytes[] = {1 << 20, 4 << 20, 25 << 20, 100 << 20};

double GradientBytes(const DdpRecordings& ddp) {
  if (ddp.plans.empty()) return 0;
  return absl::c_accumulate(
      NumbersOf(ddp.plans[0].buckets, &ReadyBucket::bytes), 0.0);
}

// Returns the bucket limits that yield other buckets than recorded, without
// duplicates.
std::vector<double> OtherBuckets(const DdpRecordings& ddp,
                                 const Layout& layout) {
  std::vector<double> limits;
  if (layout.dp == 1) return limits;
  const BucketPlan& plan =
      NearestPlan(ddp.plans, layout.micro_batch, layout.dp);
  std::set<std::vector<double>> seen = {
      NumbersOf(plan.buckets, &ReadyBucket::bytes)};
  for (double bytes : kBucketBytes) {
    if (seen.insert(
                NumbersOf(Rebucket(plan.buckets, bytes), &ReadyBucket::bytes))
            .second) {
      limits.push_back(bytes);
    }
  }
  return limits;
}

std::string DoesNotDivide(const std::string& name, int64_t global_batch,
                          int64_t parts) {
  return absl::StrCat(name, ": a global batch of ", global_batch,
                      " does not divide by ", parts);
}

// Describes the slowest rank's excess and its uncertainty.
std::string NoiseLine(const SimulatedLayout& simulated, double seconds) {
  size_t samples = 0;
  for (const auto& run : simulated.runs) samples += run.size();
  return absl::StrFormat(
      "the slowest of %d sets the pace: %.3g ms, from the spread of %d "
      "recorded steps%s",
      simulated.waiting, seconds * 1e3, samples,
      static_cast<int64_t>(samples) < simulated.waiting
          ? ", fewer than the ranks, so at least that"
          : "");
}

ModelError ModelErrorOf(absl::Span<const double> errors, int parameters) {
  if (errors.empty()) return {};
  const std::vector<double> squares =
      NumbersOf(errors, [](double error) { return error * error; });
  const int count = static_cast<int>(errors.size());
  return {count, std::sqrt(Mean(squares)), std::max(1, count - parameters)};
}

// Appends the relative error of a configuration's prediction, if there is one.
void AddError(const absl::StatusOr<SimulatedLayout>& simulated,
              absl::Span<const double> measured_seconds,
              std::vector<double>& errors) {
  const double measured = Median(measured_seconds);
  if (!simulated.ok() || !(measured > 0)) return;
  errors.push_back(
      EstimateStep(simulated->runs, simulated->waiting).step_seconds /
          measured -
      1);
}

// Returns the model's error for ddp on several ranks: predicts each recorded
// configuration from its own computation, which tests communication and
// waiting.
ModelError EvaluateOnRecorded(const DdpRecordings& ddp,
                              const NetworkModel& network) {
  std::map<std::tuple<int64_t, int64_t, double>, std::vector<double>> measured;
  for (const RecordedDdp& run : ddp.runs) {
    if (run.world_size < 2 || run.skips_communication) continue;
    if (run.step_seconds <= 0 || run.batch != std::floor(run.batch)) continue;
    if (run.world_size % run.hosts != 0) continue;
    measured[{run.world_size, run.hosts, run.batch}].push_back(
        run.step_seconds);
  }
  std::vector<double> errors;
  for (const auto& [configuration, seconds] : measured) {
    const auto [dp, hosts, batch] = configuration;
    const Layout layout = {.dp = dp,
                           .micro_batch = static_cast<int64_t>(batch),
                           .ranks_per_host = hosts > 1 ? dp / hosts : 0,
                           .hierarchical = ddp.runs[0].hierarchical};
    AddError(SimulateDdpLayout(ddp, layout, network), seconds, errors);
  }
  return ModelErrorOf(errors, /*parameters=*/0);
}

// The layout in which a pipeline ran.
Layout LayoutOf(const RecordedPipeline& pipeline) {
  return {.pp = pipeline.pp,
          .dp = pipeline.dp,
          .schedule = pipeline.schedule,
          .chunks = pipeline.stages / pipeline.pp,
          .micro_batch = static_cast<int64_t>(pipeline.micro_batch_examples),
          .micro_batches = pipeline.micro_batches};
}

// Returns the model's error for pipelines: predicts each recorded configuration
// from the others, because its own timelines would reproduce its own step.
ModelError CrossValidate(absl::Span<const RecordedPipeline> pipelines,
                         double gradient_bytes, const NetworkModel& network) {
  std::map<std::string, std::vector<const RecordedPipeline*>> configurations;
  const auto name = [](const RecordedPipeline& pipeline) {
    return absl::StrCat(LayoutOf(pipeline).Name(), " of ",
                        pipeline.micro_batch_examples, " in ", pipeline.stages);
  };
  for (const RecordedPipeline& pipeline : pipelines)
    configurations[name(pipeline)].push_back(&pipeline);
  std::vector<double> errors;
  for (const auto& [configuration, runs] : configurations) {
    std::vector<RecordedPipeline> others;
    for (const RecordedPipeline& pipeline : pipelines) {
      if (name(pipeline) != configuration) others.push_back(pipeline);
    }
    AddError(SimulatePipelineLayout(others, LayoutOf(*runs[0]), gradient_bytes,
                                    network),
             NumbersOf(runs, [](const auto* run) { return run->step_seconds; }),
             errors);
  }
  return ModelErrorOf(errors, /*parameters=*/1);
}

std::string ModelErrorLine(const ModelError& error, bool is_pipeline) {
  if (error.configurations == 0) {
    return is_pipeline
               ? "no recorded pipeline can be predicted from the others: the "
                 "interval does not include the model's error"
               : "ddp was recorded on no more than one rank: the interval does "
                 "not include the model's error";
  }
  return absl::StrCat("the interval includes the model's error where ",
                      is_pipeline
                          ? "recorded pipelines are predicted from each other: "
                          : "ddp was recorded on several ranks: ",
                      PercentText(error.deviation), " (root mean square of ",
                      Counted(error.configurations, "configuration"), ")");
}

Prediction Summarize(const Layout& layout, SimulatedLayout simulated,
                     const ModelError& error) {
  // The step of a single rank is recorded, not modelled.
  const bool modelled = layout.ranks() > 1;
  Prediction prediction{EstimateStep(simulated.runs, simulated.waiting,
                                     modelled ? error : ModelError()),
                        layout, static_cast<int64_t>(simulated.runs.size())};
  const double examples = layout.dp * layout.micro_batch * layout.micro_batches;
  const Interval& step = prediction.step_interval;
  prediction.examples_per_second = examples / prediction.step_seconds;
  prediction.examples_interval = {
      examples / step.high, step.low > 0
                                ? examples / step.low
                                : std::numeric_limits<double>::infinity()};
  prediction.peak_bytes = simulated.peak_bytes;
  prediction.link_seconds = simulated.link_seconds;
  prediction.extrapolations = std::move(simulated.extrapolations);
  if (simulated.waiting > 1) {
    simulated.assumptions.push_back(
        NoiseLine(simulated, prediction.noise_seconds));
  }
  if (simulated.runs.size() == 1) {
    simulated.assumptions.push_back(
        "one run was recorded: the interval does not include the variation of "
        "runs");
    simulated.conditions.insert("runs alike");
  }
  if (modelled) {
    simulated.assumptions.push_back(ModelErrorLine(error, layout.pp > 1));
    if (error.configurations == 0) simulated.conditions.insert("model exact");
  }
  prediction.conditions = std::move(simulated.conditions);
  prediction.assumptions = std::move(simulated.assumptions);
  return prediction;
}

std::vector<Layout> DdpCandidates(const DdpRecordings& ddp, int64_t world_size,
                                  int64_t global_batch,
                                  std::vector<std::string>* left_out) {
  std::vector<Layout> layouts;
  if (ddp.plans.empty()) return layouts;
  Layout layout = {.dp = world_size, .micro_batch = global_batch / world_size};
  if (global_batch % world_size != 0) {
    left_out->push_back(DoesNotDivide(layout.Name(), global_batch, world_size));
    return layouts;
  }
  layouts.push_back(layout);
  for (double bytes : OtherBuckets(ddp, layout)) {
    layout.bucket_bytes = bytes;
    layouts.push_back(layout);
  }
  return layouts;
}

std::vector<Layout> PipelineCandidates(
    absl::Span<const RecordedPipeline> pipelines, int64_t world_size,
    int64_t global_batch, std::vector<std::string>* left_out) {
  // (ranks, examples) -> recorded chunks other than the schedule's default, 2
  std::map<std::pair<int64_t, int64_t>, std::set<int64_t>> cuts;
  for (const RecordedPipeline& pipeline : pipelines) {
    std::set<int64_t>& chunks = cuts[{
        pipeline.pp, static_cast<int64_t>(pipeline.micro_batch_examples)}];
    const int64_t recorded = pipeline.stages / pipeline.pp;
    if (pipeline.schedule == "interleaved_1f1b" && recorded != 2)
      chunks.insert(recorded);
  }
  std::vector<std::string> schedules = ScheduleNames();
  // Last, as it takes as long as 1f1b and keeps more activations.
  std::stable_partition(schedules.begin(), schedules.end(),
                        [](const std::string& s) { return s != "gpipe"; });
  std::vector<Layout> layouts;
  std::set<int64_t> refused;  // numbers of ranks
  for (const auto& [cut, chunks] : cuts) {
    const auto& [pp, examples] = cut;
    Layout layout = {.pp = pp, .dp = world_size / pp, .micro_batch = examples};
    const int64_t part = layout.dp * examples;
    if (world_size % pp != 0) {
      if (!refused.insert(pp).second) continue;
      left_out->push_back(absl::StrCat("pp ", pp, ": ", world_size,
                                       " ranks do not divide by ", pp));
      continue;
    }
    if (examples < 1 || global_batch % part != 0) {
      left_out->push_back(
          DoesNotDivide(absl::StrCat("pp ", pp, " x dp ", layout.dp,
                                     ", micro-batches of ", examples),
                        global_batch, part));
      continue;
    }
    layout.micro_batches = global_batch / part;
    for (const std::string& schedule : schedules) {
      layout.schedule = schedule;
      layouts.push_back(layout);
      if (schedule != "interleaved_1f1b") continue;
      for (const int64_t number : chunks) {
        layouts.push_back(layout);
        layouts.back().chunks = number;
      }
    }
  }
  return layouts;
}

}  // namespace

double SecondsAt(const CostEstimate& cost, CostSide side) {
  if (side == CostSide::kLow) return cost.interval.low;
  return side == CostSide::kHigh ? cost.interval.high : cost.seconds;
}

StepEstimate EstimateStep(absl::Span<const std::vector<StepSample>> runs,
                          int64_t ranks, const ModelError& error) {
  const std::vector<Samples> thinned = Thinned(runs);
  std::vector<std::vector<double>> values;
  Samples all;
  for (const Samples& run : thinned) {
    values.push_back(PartOf(run, &StepTimes::step_seconds));
    all.insert(all.end(), run.begin(), run.end());
  }
  const Center center = CenterOf(values, ranks);
  StepEstimate estimate;
  estimate.step_seconds = center.median + center.noise;
  estimate.noise_seconds = center.noise;
  estimate.exposed_comm_seconds =
      Median(PartOf(all, &StepTimes::exposed_comm_seconds));
  estimate.bubble_seconds = Median(PartOf(all, &StepTimes::bubble_seconds));
  const Interval drawn = DrawInterval(thinned, ranks, error);
  estimate.step_interval = {std::min(drawn.low, estimate.step_seconds),
                            std::max(drawn.high, estimate.step_seconds)};
  return estimate;
}

absl::StatusOr<RecordedPredictor> RecordedPredictor::Create(
    absl::Span<const RunTrace> runs, const NetworkModel& network,
    const ThroughputConfig& config) {
  ASSIGN_OR_RETURN(const std::vector<const RunTrace*> usable,
                   PredictableRuns(runs, config));
  RecordedPredictor predictor(network);
  if (!usable.empty()) predictor.unit_ = UnitOf(usable[0]->ranks[0].run);
  predictor.pipelines_ = CollectPipelines(usable, config);
  absl::StatusOr<DdpRecordings> ddp = CollectDdp(usable, config);
  // Pipelines can be predicted without ddp's buckets.
  if (ddp.ok()) {
    predictor.ddp_ = *std::move(ddp);
  } else if (predictor.pipelines_.empty()) {
    return ddp.status();
  }
  if (predictor.ddp_.plans.empty() && predictor.pipelines_.empty()) {
    return absl::FailedPreconditionError(
        "nothing to predict from: neither ddp with the traffic of its steps "
        "nor a pipeline with timelines was recorded; record them: bazel run "
        "//trainers:ddp -- --nproc=2 --traffic_steps=10 --record=FILE");
  }
  predictor.ddp_error_ = EvaluateOnRecorded(predictor.ddp_, network);
  predictor.pipeline_error_ = CrossValidate(
      predictor.pipelines_, GradientBytes(predictor.ddp_), network);
  return predictor;
}

absl::StatusOr<Prediction> RecordedPredictor::Predict(const Layout& layout) {
  if (layout.dp < 1 || layout.pp < 1 || layout.micro_batch < 1 ||
      layout.micro_batches < 1 || layout.bucket_bytes < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(layout.Name(),
                     ": ranks, examples and micro-batches must "
                     "be at least 1, bucket_bytes at least 0"));
  }
  ASSIGN_OR_RETURN(SimulatedLayout simulated,
                   layout.pp == 1
                       ? SimulateDdpLayout(ddp_, layout, network_)
                       : SimulatePipelineLayout(pipelines_, layout,
                                                GradientBytes(ddp_), network_));
  Prediction prediction =
      Summarize(layout, std::move(simulated),
                layout.pp == 1 ? ddp_error_ : pipeline_error_);
  prediction.unit = unit_;
  return prediction;
}

std::vector<Layout> RecordedPredictor::Candidates(
    int64_t world_size, int64_t global_batch,
    std::vector<std::string>* left_out) const {
  std::vector<Layout> layouts =
      DdpCandidates(ddp_, world_size, global_batch, left_out);
  absl::c_move(
      PipelineCandidates(pipelines_, world_size, global_batch, left_out),
      std::back_inserter(layouts));
  return layouts;
}

std::string LinkSentence(const Prediction& prediction) {
  if (prediction.link_seconds < 0.01 * prediction.step_seconds) return "";
  return absl::StrFormat(
      "The link between hosts limits %s: it costs %s ms of its step, %s.",
      prediction.layout.Name(), MillisecondsText(prediction.link_seconds),
      PercentText(prediction.link_seconds / prediction.step_seconds));
}

}  // namespace rankwise
