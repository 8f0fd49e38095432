#include "trainers/local_model_parallel.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_format.h"
#include "parallel/pipeline/timeline.h"
#include "parallel/pipeline/trace.h"
#include "trainers/evaluate.h"
#include "trainers/median.h"
#include "trainers/objective.h"
#include "trainers/stage_profile.h"
#include "trainers/stage_split.h"
#include "trainers/step_trace.h"
#include "trainers/timeline_record.h"

namespace rankwise {
namespace {

// Between two looks at where the devices' clocks stand on the host's.
constexpr double kAnchorSeconds = 1;

}  // namespace

LocalModelParallel::LocalModelParallel(const TrainConfig& config,
                                       const Worker& worker)
    : config_(config), worker_(worker), devices_(worker.devices) {}

absl::StatusOr<std::unique_ptr<LocalModelParallel>> LocalModelParallel::Create(
    const TrainConfig& config, const Worker& worker, const std::string& split) {
  auto run = std::unique_ptr<LocalModelParallel>(
      new LocalModelParallel(config, worker));
  absl::Status status = run->CutIntoStages(split);
  if (status.ok()) status = run->CreateTraining();
  if (!status.ok()) return status;
  return run;
}

absl::Status LocalModelParallel::CutIntoStages(const std::string& split) {
  absl::StatusOr<ModelSpec> spec = MakeModelSpec(config_.model);
  if (!spec.ok()) return spec.status();
  spec_ = *std::move(spec);
  absl::StatusOr<ModelSplit> cut = SplitModel(
      config_, spec_, worker_, split, static_cast<int>(devices_.size()));
  if (!cut.ok()) return cut.status();
  stage_layers_ = std::move(cut->stages);
  profile_ = std::move(cut->profile);
  return absl::OkStatus();
}

absl::Status LocalModelParallel::CreateTraining() {
  ModelPlacement placement;
  for (size_t i = 0; i < stage_layers_.size(); ++i) {
    const LayerRange& layers = stage_layers_[i];
    placement.devices.insert(placement.devices.end(), layers.end - layers.begin,
                             devices_[i]);
  }
  absl::StatusOr<std::unique_ptr<TrainingRun>> training =
      TrainingRun::Create(config_, worker_, placement);
  if (!training.ok()) return training.status();
  training_ = std::move(*training);
  training_->EvaluateBy([this](TrainingData& data, int64_t epoch) {
    return EvaluateTestSet(data, epoch);
  });
  std::vector<Stage*> stages;
  output_types_.assign(stage_layers_.size(), torch::kFloat);
  for (size_t i = 0; i < stage_layers_.size(); ++i) {
    ModelStageConfig config{.layers = stage_layers_[i],
                            .device = devices_[i],
                            .precision = config_.precision};
    if (i > 0) config.input_type = output_types_[i - 1];
    if (i + 1 < stage_layers_.size() && config_.precision != Precision::kFp32) {
      config.output_type = output_types_[i] =
          TryForward(training_->model(), config,
                     ExampleInput(spec_, config, *training_->data().train))
              .scalar_type();
    }
    stages_.push_back(
        std::make_unique<ModelStage>(training_->model(), spec_, config));
    stages.push_back(stages_.back().get());
  }
  sequence_.emplace(std::move(stages), devices_, config_.skip_communication);
  AnchorClocks();
  return absl::OkStatus();
}

absl::Status LocalModelParallel::Train() {
  training_->Say(StageTable(spec_, stage_layers_, config_.data.batch_size,
                            profile_, output_types_));
  training_->AtEnd([this]() -> absl::Status {
    absl::Status taken = TakeInSteps(/*wait=*/true);
    if (!taken.ok()) return taken;
    training_->Say(Summary());
    return last_full_step_ == 0 ? absl::OkStatus()
                                : training_->Write(LastTimeline());
  });
  return training_->Train(
      [this](const StepInput& input) { return Step(input); });
}

absl::StatusOr<StepOutcome> LocalModelParallel::Step(const StepInput& input) {
  const auto share = [&](int micro_batch, const torch::Tensor& output) {
    const Batch& batch = input.micro_batches[static_cast<size_t>(micro_batch)];
    return ShareOfMean(
        Loss(spec_.loss, output, batch.target.to(output.device())), batch,
        input.micro_batches);
  };
  for (const auto& stage : stages_) {
    stage->Begin(input.micro_batches,
                 {input.dropout_seeds.begin(), input.dropout_seeds.end()},
                 share);
  }
  input.clock.Begin(Phase::kSchedule);
  auto state = std::make_shared<StepState>();
  state->number = input.step;
  state->micro_batches = input.micro_batches.size();
  state->in_flight =
      sequence_->Run(static_cast<int>(input.micro_batches.size()));
  input.clock.Begin(Phase::kOptimizer);
  training_->optimizer().Step(input.learning_rate);
  training_->optimizer().ZeroGrad();
  input.clock.Begin(Phase::kBetween);
  in_flight_.push_back(state);
  absl::Status taken = TakeInSteps(/*wait=*/input.watched);
  if (!taken.ok()) return taken;

  StepOutcome outcome{.loss = state->in_flight.loss()};
  if (!state->read.has_value()) {
    outcome.complete = [this, state](StepRecord& record) {
      AddTimes(Read(*state), record);
    };
    return outcome;
  }
  StepRecord times;
  AddTimes(*state->read, times);
  outcome.forward_seconds = times.forward_seconds;
  outcome.backward_seconds = times.backward_seconds;
  if (input.traced) outcome.trace = TraceOf(*state->read);
  return outcome;
}

void LocalModelParallel::AddTimes(const SequentialStep& step,
                                  StepRecord& record) {
  for (const std::vector<Span>& spans : step.timeline.ranks) {
    const Extent extent = ExtentOf(spans);
    record.forward_seconds += extent.forward_seconds;
    record.backward_seconds += extent.backward_seconds;
  }
}

const SequentialStep& LocalModelParallel::Read(StepState& step) const {
  if (!step.read.has_value()) step.read = step.in_flight.Read(anchors_);
  return *step.read;
}

absl::Status LocalModelParallel::TakeInSteps(bool wait) {
  while (!in_flight_.empty() &&
         (wait || in_flight_.front()->in_flight.reached())) {
    // Where the host waits, and now and then where the devices have nothing
    // left to do but the update.
    const bool stale = Now() - anchored_seconds_ > kAnchorSeconds;
    if (stale && (wait || in_flight_.back()->in_flight.reached()))
      AnchorClocks();
    StepState& step = *in_flight_.front();
    absl::Status noted = Note(step.number, step.micro_batches, Read(step));
    if (!noted.ok()) return noted;
    in_flight_.pop_front();
  }
  return absl::OkStatus();
}

// Waits for the devices.
void LocalModelParallel::AnchorClocks() {
  anchors_ = sequence_->AnchorClocks();
  anchored_seconds_ = Now();
}

// A record per stage; boundary i belongs to stage i, which sends across it
// first.
absl::Status LocalModelParallel::Note(int64_t step, size_t micro_batches,
                                      const SequentialStep& measured) {
  std::vector<double> busy_seconds;
  const double seconds = measured.end_seconds - measured.start_seconds;
  for (size_t i = 0; i < stages_.size(); ++i) {
    const Extent extent = ExtentOf(measured.timeline.ranks[i]);
    busy_seconds.push_back(extent.busy_seconds());
    ScheduleRecord record;
    record.rank = worker_.env.rank;
    record.step = step;
    record.schedule = "naive";
    record.pipeline_rank = static_cast<int64_t>(i);
    record.pipeline_size = static_cast<int64_t>(stages_.size());
    record.stages = record.pipeline_size;
    record.micro_batches = static_cast<int64_t>(micro_batches);
    record.schedule_seconds = seconds;
    record.span_seconds = extent.seconds();
    record.busy_seconds = busy_seconds[i];
    record.wait_seconds = seconds - busy_seconds[i];
    record.exposed_transfer_seconds = 0;
    record.peak_activations = 1;
    record.predicted_seconds = record.predicted_span_bubble =
        record.predicted_wall_bubble = std::numeric_limits<double>::quiet_NaN();
    if (i < measured.boundaries.size()) {
      // As many bytes of activations forth as of gradients back.
      record.transfer_seconds = measured.boundaries[i].seconds;
      // Nothing else happens while a copy is made.
      record.exposed_transfer_seconds = record.transfer_seconds;
      record.sent_bytes = measured.boundaries[i].bytes / 2;
      record.received_bytes = measured.boundaries[i].bytes / 2;
    }
    absl::Status written = training_->Write(record);
    if (!written.ok()) return written;
  }
  if (static_cast<int64_t>(micro_batches) == config_.accumulate) {
    last_full_step_ = step;
    last_full_ = measured.timeline;
  }
  if (std::exchange(warmed_up_, true)) {
    steps_.push_back({seconds, busy_seconds, measured.boundaries});
  }
  return absl::OkStatus();
}

// A lane per stage, and one for what crosses between them.
std::vector<TraceSpan> LocalModelParallel::TraceOf(
    const SequentialStep& step) const {
  std::vector<TraceSpan> bars;
  for (size_t i = 0; i < stages_.size(); ++i) {
    const std::string lane =
        absl::StrFormat("stage %d (%s)", i, devices_[i].str());
    for (const Span& span : step.timeline.ranks[i])
      bars.push_back(ToTraceSpan(span, lane));
  }
  for (const StageCopy& copy : step.copies) {
    TraceSpan bar;
    bar.lane = kCommunicationLane;
    bar.name = "copy";
    bar.category = "communication";
    bar.start_seconds = copy.start_seconds;
    bar.end_seconds = copy.end_seconds;
    bar.nests = false;
    bar.args = {{"bytes", copy.bytes},
                {"from_stage", copy.from},
                {"to_stage", copy.to}};
    bars.push_back(std::move(bar));
  }
  return bars;
}

// All stages in one: they take turns.
TimelineRecord LocalModelParallel::LastTimeline() const {
  std::vector<Span> spans;
  for (const std::vector<Span>& of_stage : last_full_.ranks)
    spans.insert(spans.end(), of_stage.begin(), of_stage.end());
  std::sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) {
    return a.start_seconds < b.start_seconds;
  });
  TimelineRecord record = ToTimelineRecord(spans, spans.front().start_seconds);
  record.rank = worker_.env.rank;
  record.step = last_full_step_;
  record.schedule = "naive";
  return record;
}

absl::StatusOr<EvalRecord> LocalModelParallel::EvaluateTestSet(
    TrainingData& data, int64_t epoch) {
  EvaluationMode evaluation_mode(training_->model());
  EvaluationSums sums(spec_.loss, worker_.device);
  data.test_loader->StartEpoch(0);
  while (true) {
    absl::StatusOr<std::optional<Batch>> batch = data.test_loader->Next();
    if (!batch.ok()) return batch.status();
    if (!batch->has_value()) break;
    const auto count = [&](int, const torch::Tensor& output) {
      sums.Add(output.to(worker_.device), (*batch)->target);
      return output;
    };
    for (const auto& stage : stages_) stage->Begin({&**batch, 1}, {0}, count);
    sequence_->RunForward(1);
  }
  return sums.Finish(data, worker_, epoch);
}

std::string LocalModelParallel::Summary() const {
  if (steps_.empty()) return "too few steps to say how busy the stages were";
  const auto median = [this](auto part) {
    std::vector<double> values;
    for (const Measures& step : steps_) values.push_back(part(step));
    return Median(std::move(values));
  };
  const double seconds = median([](const Measures& m) { return m.seconds; });
  std::string text = absl::StrFormat(
      "%d stages in turn; medians over %d steps of %.2f ms\n"
      "  stage  device    busy ms   idle ms  utilisation\n",
      stages_.size(), steps_.size(), seconds * 1e3);
  for (size_t i = 0; i < stages_.size(); ++i) {
    const double busy =
        median([i](const Measures& m) { return m.busy_seconds[i]; });
    absl::StrAppendFormat(&text, "  %5d  %-8s %8.2f  %8.2f  %9.1f %%\n", i,
                          devices_[i].str(), busy * 1e3, (seconds - busy) * 1e3,
                          100 * busy / seconds);
  }
  for (size_t i = 0; i + 1 < stages_.size(); ++i) {
    absl::StrAppendFormat(
        &text,
        "  between stages %d and %d: %.2f MB a step, both ways, in %.2f ms", i,
        i + 1, static_cast<double>(steps_.back().boundaries[i].bytes) * 1e-6,
        1e3 *
            median([i](const Measures& m) { return m.boundaries[i].seconds; }));
    if (i + 2 < stages_.size()) text += "\n";
  }
  return text;
}

}  // namespace rankwise
