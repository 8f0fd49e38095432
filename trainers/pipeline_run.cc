#include "trainers/pipeline_run.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "parallel/comm/communicator.h"
#include "parallel/pipeline/communication.h"
#include "parallel/pipeline/timeline.h"
#include "parallel/pipeline/trace.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"
#include "trainers/evaluate.h"
#include "trainers/objective.h"
#include "trainers/stage_profile.h"
#include "trainers/stage_split.h"
#include "trainers/step_trace.h"

namespace rankwise {
namespace {

// Between two looks at where the devices' clocks stand on the host's.
constexpr double kAnchorSeconds = 1;

}  // namespace

PipelineRun::PipelineRun(const TrainConfig& config, const Worker& worker,
                         const PipelineConfig& pipeline)
    : config_(config), worker_(worker), pipeline_(pipeline) {
  config_.accumulate = pipeline.micro_batches;
}

PipelineRun::~PipelineRun() = default;

absl::StatusOr<std::unique_ptr<PipelineRun>> PipelineRun::Create(
    const TrainConfig& config, const Worker& worker,
    const PipelineConfig& pipeline) {
  auto run =
      std::unique_ptr<PipelineRun>(new PipelineRun(config, worker, pipeline));
  for (auto step :
       {&PipelineRun::LayOut, &PipelineRun::CutIntoStages,
        &PipelineRun::CreateTraining, &PipelineRun::ConnectStages}) {
    absl::Status status = ((*run).*step)();
    if (!status.ok()) return status;
  }
  return run;
}

absl::Status PipelineRun::CutIntoStages() {
  absl::StatusOr<ModelSpec> spec = MakeModelSpec(config_.model);
  if (!spec.ok()) return spec.status();
  spec_ = *std::move(spec);
  absl::StatusOr<const Schedule*> schedule =
      ScheduleFor(static_cast<size_t>(pipeline_.micro_batches));
  if (!schedule.ok()) return schedule.status();
  const int stages = (*schedule)->num_stages();
  absl::StatusOr<ModelSplit> split =
      SplitModel(config_, spec_, worker_, pipeline_.split, stages);
  if (!split.ok()) return split.status();
  stage_layers_ = std::move(split->stages);
  profile_ = std::move(split->profile);
  return absl::OkStatus();
}

absl::StatusOr<const Schedule*> PipelineRun::ScheduleFor(size_t micro_batches) {
  const auto found = schedules_.find(micro_batches);
  if (found != schedules_.end()) return &found->second;
  // A file's schedule is of a full step; others are made for fewer, too.
  const bool from_file = !IsScheduleName(pipeline_.schedule);
  const size_t made_for =
      from_file ? static_cast<size_t>(pipeline_.micro_batches) : micro_batches;
  absl::StatusOr<Schedule> computation = OpenSchedule(
      pipeline_.schedule, {.num_ranks = pipeline_size(),
                           .num_micro_batches = static_cast<int>(made_for),
                           .chunks = pipeline_.chunks});
  if (!computation.ok()) return computation.status();
  if (made_for != micro_batches) {
    computation =
        FirstMicroBatches(*computation, static_cast<int>(micro_batches));
  }
  absl::StatusOr<Schedule> complete = AddCommunication(*computation);
  if (!complete.ok()) return complete.status();
  return &schedules_.emplace(micro_batches, *std::move(complete)).first->second;
}

absl::Status PipelineRun::Train() {
  training_->Say(StageTable(spec_, stage_layers_, config_.data.batch_size,
                            profile_, output_types_));
  if (in_one_process()) training_->Say(DescribeDevices());
  training_->AtEnd([this] { return Finish(); });
  training_->AddToTrace([this] { return PredictedTrace(); });
  return training_->Train(
      [this](const StepInput& input) { return Step(input); });
}

std::string PipelineRun::DescribeDevices() const {
  std::vector<std::string> names;
  for (const torch::Device& device : worker_.devices)
    names.push_back(device.str());
  const std::set<std::string> different(names.begin(), names.end());
  std::string text =
      absl::StrCat("one process runs the ", names.size(),
                   names.size() == 1 ? " rank" : " ranks",
                   " of the pipeline, on ", absl::StrJoin(names, ", "));
  if (different.count("cpu") > 0) {
    absl::StrAppend(&text,
                    "; slots on the cpu share its cores and run in turn, so "
                    "that their bubbles are not those of several machines");
  } else if (different.size() < names.size()) {
    absl::StrAppend(&text, "; ranks on one device share it");
  }
  return text;
}

absl::Status PipelineRun::Finish() {
  absl::Status taken = TakeInSteps(/*wait=*/true);
  if (!taken.ok()) return taken;
  absl::StatusOr<std::string> summary = meter_->Summary();
  if (!summary.ok()) return summary.status();
  training_->Say(*summary);
  absl::StatusOr<std::vector<TimelineRecord>> timelines = meter_->Timelines();
  if (!timelines.ok()) return timelines.status();
  for (const TimelineRecord& timeline : *timelines) {
    absl::Status written = training_->Write(timeline);
    if (!written.ok()) return written;
  }
  return absl::OkStatus();
}

void PipelineRun::BeginStages(const StepInput& input) {
  const auto share = [this, micro_batches = input.micro_batches](
                         int micro_batch, const torch::Tensor& output) {
    const Batch& batch = micro_batches[static_cast<size_t>(micro_batch)];
    return ShareOfMean(
        Loss(spec_.loss, output, batch.target.to(output.device())), batch,
        micro_batches);
  };
  for (const auto& stage : stages_) {
    if (stage == nullptr) continue;
    stage->Begin(input.micro_batches,
                 {input.dropout_seeds.begin(), input.dropout_seeds.end()},
                 share);
  }
}

std::vector<StepInFlight> PipelineRun::RunSchedule(const Schedule& schedule) {
  if (in_one_process()) return local_executor_->Run(schedule);
  std::vector<StepInFlight> steps;
  steps.push_back(executor_->Run(schedule));
  return steps;
}

// The time that the update had to wait for it.
LaterSeconds PipelineRun::ExchangeGradients() {
  if (in_one_process()) return 0;
  replica_gradients_->Start(shared_here_);
  LaterSeconds exposed = replica_gradients_->Finish();
  exposed += AddUpTiedGradients();
  return exposed;
}

// Running statistics are those of replica 0's examples, as in PyTorch's DDP.
// Returns the time that the step had to wait for them.
LaterSeconds PipelineRun::BroadcastBuffersOfReplicas() {
  if (in_one_process() || config_.skip_communication) return 0;
  return BroadcastBuffers(mesh_->group("dp"), training_->model().buffers());
}

absl::StatusOr<StepOutcome> PipelineRun::Step(const StepInput& input) {
  absl::StatusOr<const Schedule*> schedule =
      ScheduleFor(input.micro_batches.size());
  if (!schedule.ok()) return schedule.status();
  absl::Status taken = TakeInSteps(/*wait=*/false);
  if (!taken.ok()) return taken;
  BeginStages(input);
  input.clock.Begin(Phase::kSchedule);
  auto state = std::make_shared<StepState>();
  state->number = input.step;
  state->schedule = *schedule;
  LaterSeconds exposed = BroadcastBuffersOfReplicas();
  state->in_flight = RunSchedule(**schedule);
  exposed += ExchangeGradients();
  input.clock.Begin(Phase::kOptimizer);
  training_->optimizer().Step(input.learning_rate);
  training_->optimizer().ZeroGrad();
  last_update_.emplace(worker_.device);

  input.clock.Begin(Phase::kBetween);
  if (worker_.comm != nullptr)
    worker_.comm->StopTraffic();  // what the meter asks is not the step's
  const bool full = input.micro_batches.size() ==
                    static_cast<size_t>(pipeline_.micro_batches);
  full_steps_ += full;
  steps_.push_back(state);
  const bool due = full && PipelineMeter::IsDue(full_steps_);
  taken = TakeInSteps(/*wait=*/due || input.watched);
  if (!taken.ok()) return taken;

  StepOutcome outcome{.loss = state->in_flight.front().loss,
                      .exposed_comm_seconds = std::move(exposed)};
  if (state->read.empty()) {
    outcome.complete = [this, state](StepRecord& record) {
      AddTimes(*state, record);
    };
    return outcome;
  }
  StepRecord times;
  AddTimes(*state, times);
  outcome.forward_seconds = times.forward_seconds;
  outcome.backward_seconds = times.backward_seconds;
  if (!in_one_process())
    outcome.wait_seconds = state->read.front().wait_seconds();
  if (!input.traced) return outcome;
  outcome.trace = TraceOf(*state);
  if (full) traced_start_seconds_ = FirstStart(*state);
  return outcome;
}

double PipelineRun::FirstStart(const StepState& step) {
  double first = ExtentOf(step.read.front().spans).start_seconds;
  for (const ExecutorStep& read : step.read)
    first = std::min(first, ExtentOf(read.spans).start_seconds);
  return first;
}

// The mean over devices, where each has its own ranks.
void PipelineRun::AddTimes(StepState& step, StepRecord& record) {
  std::vector<torch::Device> devices;
  for (int rank : ranks_) devices.push_back(DeviceOf(rank));
  std::set<std::string> different;
  for (const torch::Device& device : devices) different.insert(device.str());
  for (const ExecutorStep& read : Read(step)) {
    const Extent extent = ExtentOf(read.spans);
    record.forward_seconds +=
        extent.forward_seconds / static_cast<double>(different.size());
    record.backward_seconds +=
        extent.backward_seconds / static_cast<double>(different.size());
  }
}

const std::vector<ExecutorStep>& PipelineRun::Read(StepState& step) const {
  if (!step.read.empty()) return step.read;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    step.in_flight[i].end->Wait();
    step.read.push_back(step.in_flight[i].Read(anchors_[i]));
  }
  return step.read;
}

absl::Status PipelineRun::TakeInSteps(bool wait) {
  const bool stale = Now() - anchored_seconds_ > kAnchorSeconds;
  // With nothing left to do for the devices this costs the host nothing.
  const bool idle = !last_update_.has_value() || last_update_->reached();
  if (!worker_.device.is_cpu() && stale && (wait || idle)) AnchorClocks();
  while (!steps_.empty() && (wait || Reached(*steps_.front()))) {
    StepState& step = *steps_.front();
    absl::StatusOr<std::vector<ScheduleRecord>> records =
        meter_->Add(step.number, *step.schedule, Read(step));
    if (!records.ok()) return records.status();
    for (const ScheduleRecord& record : *records) {
      absl::Status written = training_->Write(record);
      if (!written.ok()) return written;
    }
    step.in_flight.erase(step.in_flight.begin() + 1, step.in_flight.end());
    steps_.pop_front();
  }
  return absl::OkStatus();
}

bool PipelineRun::Reached(const StepState& step) {
  return std::all_of(step.in_flight.begin(), step.in_flight.end(),
                     [](const StepInFlight& rank) { return rank.reached(); });
}

// Waits for the devices.
void PipelineRun::AnchorClocks() {
  anchors_.clear();
  for (int rank : ranks_) anchors_.emplace_back(DeviceOf(rank));
  anchored_seconds_ = Now();
}

std::vector<TraceSpan> PipelineRun::TraceOf(const StepState& step) const {
  std::vector<TraceSpan> bars;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const torch::Device device = DeviceOf(ranks_[i]);
    const bool overlaps = ExtentOf(step.read[i].spans).overlapped_seconds > 0;
    for (const Span& span : step.read[i].spans) {
      if (!IsCompute(span.action.kind)) continue;
      std::string lane = kComputeLane;
      if (in_one_process())
        lane =
            absl::StrCat("pipeline rank ", ranks_[i], " (", device.str(), ")");
      // Bars of one lane may not overlap.
      if (overlaps) absl::StrAppend(&lane, ", stage ", span.action.stage);
      bars.push_back(ToTraceSpan(span, lane));
    }
  }
  return bars;
}

// Beside the last full step that was traced, as it should have been.
absl::StatusOr<std::vector<TraceProcess>> PipelineRun::PredictedTrace() {
  std::vector<TraceProcess> processes;
  if (traced_start_seconds_ == 0) return processes;
  const absl::StatusOr<Timeline> prediction = meter_->Predict();
  if (!prediction.ok()) return prediction.status();
  const double first = ExtentOf(prediction->ranks[0]).start_seconds;
  processes.push_back(ToTraceProcess({"predicted", &*prediction}, 0,
                                     traced_start_seconds_ - first));
  return processes;
}

// Both ranks of a tied weight end with the gradient of all its uses. Returns
// the time that it took.
LaterSeconds PipelineRun::AddUpTiedGradients() {
  if (config_.skip_communication || shared_with_peers_.empty()) return 0;
  Moment start(worker_.device);
  for (SharedWeight& shared : shared_with_peers_) {
    AddUpSharedGradient(*worker_.comm->process_group(), shared.peer, shared.tag,
                        shared.weight);
  }
  return LaterSeconds(std::move(start), Moment(worker_.device));
}

void PipelineRun::RunForward(int micro_batches) {
  if (in_one_process()) {
    local_executor_->RunForward(micro_batches);
  } else {
    executor_->RunForward(micro_batches);
  }
}

absl::StatusOr<EvalRecord> PipelineRun::EvaluateTestSet(TrainingData& data,
                                                        int64_t epoch) {
  EvaluationMode evaluation_mode(training_->model());
  BroadcastBuffersOfReplicas();  // every replica evaluates the same model
  EvaluationSums sums(spec_.loss, worker_.device);
  data.test_loader->StartEpoch(0);
  while (true) {
    std::vector<Batch> batches;
    while (batches.size() < static_cast<size_t>(pipeline_.micro_batches)) {
      absl::StatusOr<std::optional<Batch>> batch = data.test_loader->Next();
      if (!batch.ok()) return batch.status();
      if (!batch->has_value()) break;
      batches.push_back(std::move(**batch));
    }
    if (batches.empty()) break;
    const auto count = [&](int micro_batch, const torch::Tensor& output) {
      sums.Add(output.to(worker_.device),
               batches[static_cast<size_t>(micro_batch)].target);
      return output;
    };
    for (const auto& stage : stages_) {
      if (stage == nullptr) continue;
      stage->Begin(batches, std::vector<uint64_t>(batches.size()), count);
    }
    RunForward(static_cast<int>(batches.size()));
  }
  return sums.Finish(data, worker_, epoch);
}

}  // namespace rankwise
