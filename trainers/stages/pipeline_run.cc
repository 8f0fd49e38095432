#include "trainers/stages/pipeline_run.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "parallel/clock/steady_time.h"
#include "parallel/comm/communicator.h"
#include "parallel/pipeline/simulation/simulate.h"
#include "parallel/pipeline/simulation/trace.h"
#include "third_party/absl/status_macros.h"
#include "trainers/loop/objective.h"
#include "trainers/loop/sharded_model.h"
#include "trainers/observe/step_trace.h"

namespace rankwise {
namespace {

// Seconds between anchors of the devices' clocks to the host's.
constexpr double kAnchorSeconds = 1;

bool Reached(const std::vector<ExecutorStep>& ranks) {
  return absl::c_all_of(
      ranks, [](const ExecutorStep& rank) { return rank.reached(); });
}

double FirstStart(const std::vector<ExecutorStep>& ranks) {
  double first = ExtentOf(ranks.front().spans).start_seconds;
  for (const ExecutorStep& rank : ranks)
    first = std::min(first, ExtentOf(rank.spans).start_seconds);
  return first;
}

}  // namespace

PipelineRun::PipelineRun(const TrainConfig& config, const Worker& worker,
                         const MeshModel& mesh, const Schedule& full_schedule)
    : config_(config),
      worker_(worker),
      plan_(mesh.plan.get()),
      training_(mesh.training.get()),
      sharded_(mesh.sharded.get()),
      stages_(mesh.stages.get()),
      meter_(full_schedule, stages_->output_bytes(), stages_->link(), worker,
             plan_->ranks_here()) {
  AnchorClocks();
}

absl::StatusOr<std::unique_ptr<PipelineRun>> PipelineRun::Create(
    const TrainConfig& config, const Worker& worker, const MeshModel& mesh) {
  ASSIGN_OR_RETURN(
      const Schedule* full,
      mesh.plan->ScheduleFor(static_cast<size_t>(config.accumulate)));
  return std::unique_ptr<PipelineRun>(
      new PipelineRun(config, worker, mesh, *full));
}

absl::Status PipelineRun::Train(const StepFunction& step) {
  training_->Say(StageTable(plan_->model(), plan_->stages(),
                            config_.data.batch_size, plan_->profile(),
                            stages_->output_types()));
  if (plan_->in_one_process()) training_->Say(plan_->DescribeDevices());
  return training_->Train(
      step,
      [this](TrainingData& data, int64_t epoch) {
        return Evaluate(data, epoch);
      },
      [this] { return Conclude(); });
}

absl::StatusOr<std::shared_ptr<PipelineStep>> PipelineRun::Begin(
    const StepInput& input) {
  auto step = std::make_shared<PipelineStep>();
  step->number = input.step;
  RETURN_IF_ERROR(Replan(input.step - 1));
  ASSIGN_OR_RETURN(step->schedule,
                   plan_->ScheduleFor(input.micro_batches.size()));
  step->full =
      static_cast<int64_t>(input.micro_batches.size()) == config_.accumulate;
  RETURN_IF_ERROR(TakeInSteps(/*wait=*/false));
  const absl::Span<const Batch> batches = input.micro_batches;
  const auto share = [this, batches](int micro_batch,
                                     const torch::Tensor& output) {
    const Batch& batch = batches[static_cast<size_t>(micro_batch)];
    return ShareOfMean(
        training_->model().LossOf(output, batch.target.to(output.device())),
        batch, batches);
  };
  stages_->Begin(
      batches, {input.dropout_seeds.begin(), input.dropout_seeds.end()}, share);
  return step;
}

absl::StatusOr<EvalRecord> PipelineRun::Evaluate(TrainingData& data,
                                                 int64_t epoch) {
  EvaluationMode evaluation_mode(training_->model());
  stages_->BroadcastBuffers();  // every replica evaluates the same model
  EvaluationSums sums(plan_->model().loss, worker_.device);
  data.test.loader->StartEpoch(0);
  int64_t forwards = 0;
  while (true) {
    ASSIGN_OR_RETURN(const std::vector<Batch> batches,
                     NextBatches(*data.test.loader, config_.accumulate));
    if (batches.empty()) break;
    const auto count = [&](int micro_batch, const torch::Tensor& output) {
      const torch::Tensor whole = training_->model().WholeOutput(output);
      if (worker_.is_first_of_share()) {
        sums.Add(whole.to(worker_.device),
                 batches[static_cast<size_t>(micro_batch)].target);
      }
      return output;
    };
    stages_->Begin(batches, std::vector<uint64_t>(batches.size()), count);
    stages_->RunForward(static_cast<int>(batches.size()));
    forwards += static_cast<int64_t>(batches.size());
  }
  if (training_->model().forward_is_collective()) {
    const std::vector<Batch> spare = SpareBatches(data, worker_, forwards);
    const auto ignore = [](int, const torch::Tensor& output) { return output; };
    stages_->Begin(spare, std::vector<uint64_t>(spare.size()), ignore);
    stages_->RunForward(static_cast<int>(spare.size()));
  }
  return sums.Finish(data, worker_, epoch);
}

absl::StatusOr<StepOutcome> PipelineRun::End(
    const StepInput& input, std::shared_ptr<PipelineStep> step,
    std::map<std::string, PendingDuration> exposed) {
  last_update_.emplace(worker_.device);
  input.clock.Begin(Phase::kBetween);
  // Communication between ranks from here on is not part of the step.
  if (worker_.comm != nullptr) worker_.comm->StopTraffic();
  step->exchanges_costs = step->full && PipelineMeter::IsDue(++full_steps_);
  steps_.push_back(step);
  RETURN_IF_ERROR(TakeInSteps(/*wait=*/step->exchanges_costs || input.watched));

  const ExecutorStep& first = step->ranks.front();
  StepOutcome outcome{.loss = first.loss,
                      .exposed_by_axis = std::move(exposed)};
  if (!plan_->in_one_process())
    outcome.loss_rank = worker_.Line("pp")[plan_->rank_of_stage().back()];
  std::function<void(StepRecord&)> record_unit_waits;
  if (sharded_ != nullptr) record_unit_waits = RecordUnitWaits(*sharded_);
  outcome.complete = [this, step, record_unit_waits](StepRecord& record) {
    AddTimes(*step, record);
    if (record_unit_waits != nullptr) record_unit_waits(record);
  };
  if (first.has_times() && !plan_->in_one_process())
    outcome.wait_seconds = first.wait_seconds();
  if (!input.traced) return outcome;
  outcome.trace = TraceOf(*step);
  if (step->full) {
    ASSIGN_OR_RETURN(outcome.predicted_trace, PredictionOf(*step));
  }
  return outcome;
}

// After an exchange of costs no step is in flight or missing in the meter.
absl::Status PipelineRun::Replan(int64_t last_step) {
  if (planned_again_ || !plan_->is_planned() || meter_.costs().stages.empty())
    return absl::OkStatus();
  planned_again_ = true;
  ASSIGN_OR_RETURN(const std::string line,
                   plan_->Replan(last_step, meter_.costs()));
  training_->Say(line);
  ASSIGN_OR_RETURN(const Schedule* full,
                   plan_->ScheduleFor(static_cast<size_t>(config_.accumulate)));
  return meter_.Follow(*full);
}

absl::Status PipelineRun::Conclude() {
  RETURN_IF_ERROR(TakeInSteps(/*wait=*/true));
  ASSIGN_OR_RETURN(std::string summary, meter_.Summary());
  training_->Say(summary);
  ASSIGN_OR_RETURN(std::vector<TimelineRecord> timelines, meter_.Timelines());
  for (const TimelineRecord& timeline : timelines) {
    RETURN_IF_ERROR(training_->Write(timeline));
  }
  return absl::OkStatus();
}

// Adds forward and backward seconds: the mean over devices of their ranks'
// sums.
void PipelineRun::AddTimes(PipelineStep& step, StepRecord& record) const {
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

const std::vector<ExecutorStep>& PipelineRun::Read(PipelineStep& step) const {
  for (size_t i = 0; i < anchors_.size(); ++i) step.ranks[i].Read(anchors_[i]);
  return step.ranks;
}

absl::Status PipelineRun::TakeInSteps(bool wait) {
  const bool stale = SteadySeconds() - anchored_seconds_ > kAnchorSeconds;
  // If the devices are idle, anchoring costs the host nothing.
  const bool idle = !last_update_.has_value() || last_update_->reached();
  if (!worker_.device.is_cpu() && stale && (wait || idle)) AnchorClocks();
  while (!steps_.empty() && (wait || Reached(steps_.front()->ranks))) {
    PipelineStep& step = *steps_.front();
    ASSIGN_OR_RETURN(std::vector<ScheduleRecord> records,
                     meter_.Add(step.number, *step.schedule, Read(step),
                                step.exchanges_costs));
    for (ScheduleRecord& record : records) {
      record.planned_for_seconds = plan_->PlannedSeconds(
          step.schedule->StagesOf(static_cast<int>(record.pipeline_rank))[0]);
      RETURN_IF_ERROR(training_->Write(record));
    }
    steps_.pop_front();
  }
  return absl::OkStatus();
}

// Blocks until the devices are idle.
void PipelineRun::AnchorClocks() {
  anchors_.clear();
  for (int rank : plan_->ranks_here())
    anchors_.emplace_back(plan_->DeviceOf(rank));
  anchored_seconds_ = SteadySeconds();
}

std::vector<TraceSpan> PipelineRun::TraceOf(const PipelineStep& step) const {
  std::vector<TraceSpan> bars;
  for (size_t i = 0; i < step.ranks.size(); ++i) {
    const std::string device = plan_->DeviceOf(plan_->ranks_here()[i]).str();
    const bool overlaps = ExtentOf(step.ranks[i].spans).overlapped_seconds > 0;
    for (const Span& span : step.ranks[i].spans) {
      if (!IsCompute(span.action.kind)) continue;
      std::string lane = kComputeLane;
      if (plan_->in_one_process()) {
        lane = absl::StrCat("stage ", span.action.stage, " (", device, ")");
      } else if (overlaps) {  // bars of one lane must not overlap
        absl::StrAppend(&lane, ", stage ", span.action.stage);
      }
      bars.push_back(ToTraceSpan(span, lane));
    }
  }
  if (!plan_->in_one_process()) return bars;
  for (TraceSpan& copy : CopiesOf(step)) bars.push_back(std::move(copy));
  return bars;
}

// For copies within one process, which have no messages to observe: from the
// start of a copy until its result was needed and available.
std::vector<TraceSpan> PipelineRun::CopiesOf(const PipelineStep& step) const {
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
      TraceSpan& bar = bars.emplace_back();
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
    }
  }
  return bars;
}

// Returns the prediction for `step` on the same clock. Collective.
absl::StatusOr<TraceProcess> PipelineRun::PredictionOf(
    const PipelineStep& step) const {
  ASSIGN_OR_RETURN(const Timeline prediction, meter_.Predict());
  const double first = ExtentOf(prediction.ranks[0]).start_seconds;
  return ToTraceProcess({"predicted", &prediction}, 0,
                        FirstStart(step.ranks) - first);
}

}  // namespace rankwise
