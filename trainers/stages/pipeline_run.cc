#include "trainers/stages/pipeline_run.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "parallel/clock/steady_time.h"
#include "parallel/comm/communicator.h"
#include "parallel/pipeline/simulation/timeline.h"
#include "parallel/pipeline/simulation/trace.h"
#include "third_party/absl/status_macros.h"
#include "trainers/loop/evaluate.h"
#include "trainers/loop/objective.h"
#include "trainers/observe/step_trace.h"

namespace rankwise {
namespace {

// Between two looks at where the devices' clocks stand on the host's.
constexpr double kAnchorSeconds = 1;

bool Reached(const std::vector<ExecutorStep>& ranks) {
  return std::all_of(ranks.begin(), ranks.end(),
                     [](const ExecutorStep& rank) { return rank.reached(); });
}

double FirstStart(const std::vector<ExecutorStep>& ranks) {
  double first = ExtentOf(ranks.front().spans).start_seconds;
  for (const ExecutorStep& rank : ranks)
    first = std::min(first, ExtentOf(rank.spans).start_seconds);
  return first;
}

}  // namespace

PipelineRun::PipelineRun(const TrainConfig& config, const Worker& worker,
                         const PipelineConfig& pipeline)
    : config_(config), worker_(worker) {
  config_.accumulate = pipeline.micro_batches;
  // As the other trainers' checkpoints call it.
  config_.flags.losses.erase("microbatches");
  config_.flags.losses["accumulate"] = absl::StrCat(pipeline.micro_batches);
}

absl::StatusOr<std::unique_ptr<PipelineRun>> PipelineRun::Create(
    const TrainConfig& config, const Worker& worker,
    const PipelineConfig& pipeline) {
  auto run =
      std::unique_ptr<PipelineRun>(new PipelineRun(config, worker, pipeline));
  RETURN_IF_ERROR(run->Prepare(pipeline));
  return run;
}

absl::Status PipelineRun::Prepare(const PipelineConfig& pipeline) {
  ASSIGN_OR_RETURN(plan_, PipelinePlan::Create(config_, worker_, pipeline));
  ASSIGN_OR_RETURN(const Schedule* full_schedule,
                   plan_->ScheduleFor(static_cast<size_t>(config_.accumulate)));
  ASSIGN_OR_RETURN(training_,
                   TrainingRun::Create(config_, worker_, plan_->Placement()));
  stages_ = std::make_unique<PipelineStages>(
      config_, worker_, *plan_, training_->model(), *training_->data().train);
  RETURN_IF_ERROR(training_->Start(TrainableParameters(training_->model())));
  stages_->ShareNorm(training_->optimizer());
  meter_.emplace(*full_schedule, stages_->output_bytes(), stages_->link(),
                 worker_, plan_->ranks_here());
  AnchorClocks();
  return absl::OkStatus();
}

absl::Status PipelineRun::Train() {
  training_->Say(StageTable(plan_->model(), plan_->stages(),
                            config_.data.batch_size, plan_->profile(),
                            stages_->output_types()));
  if (plan_->in_one_process()) training_->Say(plan_->DescribeDevices());
  RETURN_IF_ERROR(training_->TrainEpochs(
      [this](const StepInput& input) { return Step(input); },
      [this](TrainingData& data, int64_t epoch) {
        return Evaluate(data, epoch);
      }));
  RETURN_IF_ERROR(
      training_->Guarded("the end of the run", [this] { return Conclude(); }));
  return training_->Finish();
}

absl::StatusOr<StepOutcome> PipelineRun::Step(const StepInput& input) {
  ASSIGN_OR_RETURN(const Schedule* schedule,
                   plan_->ScheduleFor(input.micro_batches.size()));
  RETURN_IF_ERROR(TakeInSteps(/*wait=*/false));
  // What the last stage makes of a micro-batch's output: its share of the loss.
  const auto share = [&](int micro_batch, const torch::Tensor& output) {
    const Batch& batch = input.micro_batches[static_cast<size_t>(micro_batch)];
    return ShareOfMean(
        Loss(plan_->model().loss, output, batch.target.to(output.device())),
        batch, input.micro_batches);
  };
  stages_->Begin(input.micro_batches,
                 {input.dropout_seeds.begin(), input.dropout_seeds.end()},
                 share);

  auto state = std::make_shared<StepState>();
  state->number = input.step;
  state->schedule = schedule;
  input.clock.Begin(Phase::kSchedule);
  PendingDuration exposed = stages_->BroadcastBuffers();
  state->ranks = stages_->Run(*schedule);
  exposed += stages_->ExchangeGradients();
  input.clock.Begin(Phase::kOptimizer);
  training_->optimizer().Step(input.learning_rate);
  training_->optimizer().ZeroGrad();
  last_update_.emplace(worker_.device);

  input.clock.Begin(Phase::kBetween);
  return Measure(input, std::move(state), std::move(exposed));
}

absl::StatusOr<EvalRecord> PipelineRun::Evaluate(TrainingData& data,
                                                 int64_t epoch) {
  EvaluationMode evaluation_mode(training_->model());
  stages_->BroadcastBuffers();  // every replica evaluates the same model
  EvaluationSums sums(plan_->model().loss, worker_.device);
  data.test_loader->StartEpoch(0);
  while (true) {
    std::vector<Batch> batches;
    while (static_cast<int64_t>(batches.size()) < config_.accumulate) {
      ASSIGN_OR_RETURN(std::optional<Batch> batch, data.test_loader->Next());
      if (!batch.has_value()) break;
      batches.push_back(*std::move(batch));
    }
    if (batches.empty()) break;
    const auto count = [&](int micro_batch, const torch::Tensor& output) {
      sums.Add(output.to(worker_.device),
               batches[static_cast<size_t>(micro_batch)].target);
      return output;
    };
    stages_->Begin(batches, std::vector<uint64_t>(batches.size()), count);
    stages_->RunForward(static_cast<int>(batches.size()));
  }
  return sums.Finish(data, worker_, epoch);
}

absl::StatusOr<StepOutcome> PipelineRun::Measure(
    const StepInput& input, std::shared_ptr<StepState> state,
    PendingDuration exposed) {
  // What the ranks ask each other here is not the step's communication.
  if (worker_.comm != nullptr) worker_.comm->StopTraffic();
  state->full =
      static_cast<int64_t>(input.micro_batches.size()) == config_.accumulate;
  state->exchanges_costs = state->full && PipelineMeter::IsDue(++full_steps_);
  steps_.push_back(state);
  RETURN_IF_ERROR(
      TakeInSteps(/*wait=*/state->exchanges_costs || input.watched));

  StepOutcome outcome{.loss = state->ranks.front().loss,
                      .exposed_comm_seconds = std::move(exposed)};
  if (!state->ranks.front().has_times()) {
    outcome.complete = [this, state](StepRecord& record) {
      AddTimes(*state, record);
    };
    return outcome;
  }
  StepRecord times;
  AddTimes(*state, times);
  outcome.forward_seconds = times.forward_seconds;
  outcome.backward_seconds = times.backward_seconds;
  if (!plan_->in_one_process())
    outcome.wait_seconds = state->ranks.front().wait_seconds();
  if (!input.traced) return outcome;
  outcome.trace = TraceOf(*state);
  if (state->full) {
    ASSIGN_OR_RETURN(outcome.predicted_trace, PredictionOf(*state));
  }
  return outcome;
}

absl::Status PipelineRun::Conclude() {
  RETURN_IF_ERROR(TakeInSteps(/*wait=*/true));
  ASSIGN_OR_RETURN(std::string summary, meter_->Summary());
  training_->Say(summary);
  ASSIGN_OR_RETURN(std::vector<TimelineRecord> timelines, meter_->Timelines());
  for (const TimelineRecord& timeline : timelines) {
    RETURN_IF_ERROR(training_->Write(timeline));
  }
  return absl::OkStatus();
}

// The mean over devices, where each has its own ranks.
void PipelineRun::AddTimes(StepState& step, StepRecord& record) const {
  std::set<std::string> devices;
  for (int rank : plan_->ranks_here())
    devices.insert(plan_->DeviceOf(rank).str());
  const double count = static_cast<double>(devices.size());
  for (const ExecutorStep& rank : Read(step)) {
    const Extent extent = ExtentOf(rank.spans);
    record.forward_seconds += extent.forward_seconds / count;
    record.backward_seconds += extent.backward_seconds / count;
  }
}

const std::vector<ExecutorStep>& PipelineRun::Read(StepState& step) const {
  for (size_t i = 0; i < anchors_.size(); ++i) step.ranks[i].Read(anchors_[i]);
  return step.ranks;
}

absl::Status PipelineRun::TakeInSteps(bool wait) {
  const bool stale = SteadySeconds() - anchored_seconds_ > kAnchorSeconds;
  // With nothing left to do for the devices this costs the host nothing.
  const bool idle = !last_update_.has_value() || last_update_->reached();
  if (!worker_.device.is_cpu() && stale && (wait || idle)) AnchorClocks();
  while (!steps_.empty() && (wait || Reached(steps_.front()->ranks))) {
    StepState& step = *steps_.front();
    ASSIGN_OR_RETURN(std::vector<ScheduleRecord> records,
                     meter_->Add(step.number, *step.schedule, Read(step),
                                 step.exchanges_costs));
    for (const ScheduleRecord& record : records) {
      RETURN_IF_ERROR(training_->Write(record));
    }
    steps_.pop_front();
  }
  return absl::OkStatus();
}

// Waits for the devices.
void PipelineRun::AnchorClocks() {
  anchors_.clear();
  for (int rank : plan_->ranks_here())
    anchors_.emplace_back(plan_->DeviceOf(rank));
  anchored_seconds_ = SteadySeconds();
}

std::vector<TraceSpan> PipelineRun::TraceOf(const StepState& step) const {
  std::vector<TraceSpan> bars;
  for (size_t i = 0; i < step.ranks.size(); ++i) {
    const std::string device = plan_->DeviceOf(plan_->ranks_here()[i]).str();
    const bool overlaps = ExtentOf(step.ranks[i].spans).overlapped_seconds > 0;
    for (const Span& span : step.ranks[i].spans) {
      if (!IsCompute(span.action.kind)) continue;
      std::string lane = kComputeLane;
      if (plan_->in_one_process()) {
        lane = absl::StrCat("stage ", span.action.stage, " (", device, ")");
      } else if (overlaps) {  // bars of one lane may not
        absl::StrAppend(&lane, ", stage ", span.action.stage);
      }
      bars.push_back(ToTraceSpan(span, lane));
    }
  }
  if (!plan_->in_one_process()) return bars;
  for (TraceSpan& copy : CopiesOf(step)) bars.push_back(std::move(copy));
  return bars;
}

// Where no process sees messages: from when a copy was started to when its
// result was needed and there.
std::vector<TraceSpan> PipelineRun::CopiesOf(const StepState& step) const {
  std::map<std::string, double> needed_seconds;  // by receive
  for (const ExecutorStep& rank : step.ranks) {
    for (const Span& span : rank.spans) {
      if (IsReceive(span.action.kind))
        needed_seconds[ToString(span.action)] = span.end_seconds;
    }
  }
  std::vector<TraceSpan> bars;
  for (const ExecutorStep& rank : step.ranks) {
    for (const Span& span : rank.spans) {
      if (!IsSend(span.action.kind)) continue;
      const bool forward = span.action.kind == ActionKind::kSendForward;
      Action receive = span.action;
      receive.stage += forward ? 1 : -1;
      receive.kind =
          forward ? ActionKind::kRecvForward : ActionKind::kRecvBackward;
      TraceSpan bar;
      bar.lane = kCommunicationLane;
      bar.name = "copy";
      bar.category = "communication";
      bar.start_seconds = span.start_seconds;
      bar.end_seconds =
          std::max(span.start_seconds, needed_seconds[ToString(receive)]);
      bar.nests = false;
      bar.args = {{"bytes", stages_->BytesOf(span.action)},
                  {"from_stage", span.action.stage},
                  {"to_stage", receive.stage}};
      bars.push_back(std::move(bar));
    }
  }
  return bars;
}

// Laid beside `step`, as it should have been. Collective.
absl::StatusOr<TraceProcess> PipelineRun::PredictionOf(
    const StepState& step) const {
  ASSIGN_OR_RETURN(const Timeline prediction, meter_->Predict());
  const double first = ExtentOf(prediction.ranks[0]).start_seconds;
  return ToTraceProcess({"predicted", &prediction}, 0,
                        FirstStart(step.ranks) - first);
}

}  // namespace rankwise
