#include "trainers/loop/training_run.h"

#include <ATen/Context.h>
#include <torch/utils.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "parallel/clock/steady_time.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/diagnosis/peers.h"
#include "parallel/trace/operators.h"
#include "records/text.h"
#include "third_party/absl/status_macros.h"
#include "trainers/loop/mesh_use.h"
#include "trainers/loop/objective.h"
#include "trainers/loop/optimizer.h"
#include "trainers/loop/run_description.h"
#include "trainers/loop/step.h"
#include "trainers/loop/step_bytes.h"
#include "trainers/memory/computed_memory.h"
#include "trainers/memory/measured_memory.h"
#include "trainers/resume/initial_weights.h"
#include "trainers/resume/restart.h"

namespace rankwise {
namespace {

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

int64_t CountElements(const NamedTensors& tensors) {
  int64_t elements = 0;
  for (const auto& [name, tensor] : tensors) elements += tensor.numel();
  return elements;
}

}  // namespace

absl::Status TrainingRun::RunAndExplain(
    const std::string& attempted, const std::function<absl::Status()>& body) {
  try {
    return body();
  } catch (const std::exception& error) {
    return ExplainTrainingFailure(attempted, error, worker_);
  }
}

TrainingRun::TrainingRun(const TrainConfig& config, const Worker& worker,
                         ModelSpec spec)
    : config_(config),
      worker_(worker),
      spec_(std::move(spec)),
      traffic_(
          worker.comm, config.output.traffic_steps,
          config.output.trace.file.empty() ? 0 : config.output.trace.steps) {}

void TrainingRun::BuildModel(const ModelPlacement& placement) {
  at::manual_seed(config_.seed);
  std::vector<LayerRange> layers = placement.layers;
  if (layers.empty()) layers = {{0, spec_.layers.size()}};
  model_ =
      std::make_shared<Model>(spec_, layers,
                              ParallelOf(worker_, config_.model.split,
                                         &tensor_exposed_, &context_exposed_));
  ToChannelsLast(*model_);
  if (placement.devices.empty()) model_->to(worker_.device);
  const auto kept = model_->named_children();
  for (size_t layer = 0; layer < placement.devices.size(); ++layer) {
    const auto* module = kept.find(spec_.layers[layer].name);
    if (module != nullptr) (*module)->to(placement.devices[layer]);
  }
  objective_ = std::make_unique<Objective>(model_, spec_.loss,
                                           config_.precision, worker_.device);
}

absl::StatusOr<std::unique_ptr<TrainingRun>> TrainingRun::Create(
    const TrainConfig& config, const Worker& worker,
    const ModelPlacement& placement) {
  ASSIGN_OR_RETURN(ModelSpec spec, MakeModelSpec(config.model));
  auto run =
      std::unique_ptr<TrainingRun>(new TrainingRun(config, worker, spec));
  run->replicas_ = placement.replicas;
  RETURN_IF_ERROR(
      run->RunAndExplain("building the model", [&]() -> absl::Status {
        run->BuildModel(placement);
        ASSIGN_OR_RETURN(run->data_, OpenTrainingData(config, spec, worker,
                                                      placement.reads_data));
        return run->Plan();
      }));
  run->computed_memory_ =
      ComputeMemory(config, worker.device.type(), spec, placement);
  return run;
}

absl::Status TrainingRun::Start(const NamedTensors& owned,
                                ShardedState sharded) {
  return RunAndExplain("starting the run", [&]() -> absl::Status {
    ASSIGN_OR_RETURN(optimizer_, MakeOptimizer(owned, config_.optimizer));
    if (config_.precision == Precision::kFp16) optimizer_->UseGradScaler({});
    if (!config_.skip_communication) {
      ReduceNormAcross(worker_, *model_, sharded.group, *optimizer_);
    }
    ASSIGN_OR_RETURN(divergence_, DivergenceCheck::Create(config_, worker_));
    if (config_.output.memory) {
      Worker metered = worker_;
      if (replicas_ > 1) metered.devices.clear();  // keeps worker.device
      memory_meter_ = std::make_unique<MemoryMeter>(metered, *model_,
                                                    *optimizer_, unsharded_);
    }
    step_bytes_ = StepBytes(config_, worker_, spec_, CountElements(owned));
    RETURN_IF_ERROR(OpenCheckpoints(sharded));
    if (progress_.step == 0 && !config_.init_from.empty()) {
      RETURN_IF_ERROR(
          LoadInitialWeights(config_, worker_, *model_, *optimizer_, sharded));
    }
    return OpenOutputs();
  });
}

absl::Status TrainingRun::Plan() {
  if (__builtin_mul_overflow(config_.data.batch_size * config_.accumulate,
                             worker_.data_ranks(), &global_batch_)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--batch_size=", config_.data.batch_size, ": with ", config_.accumulate,
        " micro-batches a step and ", worker_.data_ranks(),
        " data-parallel ranks a step has more than ",
        std::numeric_limits<int64_t>::max(), " examples"));
  }
  total_steps_ = TotalSteps(config_, *data_.train.loader);
  learning_rate_ = {.peak = config_.optimizer.learning_rate,
                    .warmup_steps = config_.optimizer.warmup_steps,
                    .total_steps = total_steps_,
                    .cosine = config_.optimizer.lr_schedule == "cosine"};
  console_.emplace(
      config_, worker_,
      RunLength{.steps_per_epoch = StepsPerEpoch(config_, *data_.train.loader),
                .total_steps = total_steps_,
                .unit = UnitOf(spec_),
                .training_flops_per_example =
                    TrainingFlops(spec_, worker_, replicas_)});
  return absl::OkStatus();
}

absl::Status TrainingRun::OpenCheckpoints(ShardedState sharded) {
  if (config_.checkpoint.dir.empty()) return absl::OkStatus();
  checkpoints_.emplace(config_, total_steps_, worker_, *model_, *optimizer_,
                       std::move(sharded), std::move(engine_));
  RETURN_IF_ERROR(checkpoints_->Open());
  save_points_.emplace(config_.checkpoint, worker_.comm);
  ASSIGN_OR_RETURN(restart_, AgreeOnRestart(worker_));
  if (restart_ == 0 && !config_.checkpoint.resume)
    return SetAsideOldCheckpoints(config_.checkpoint, worker_);
  const std::string why =
      restart_ > 0 ? absl::StrCat("restart ", restart_) : "--resume";
  ASSIGN_OR_RETURN(std::optional<Progress> found,
                   checkpoints_->Resume(/*after_restart=*/restart_ > 0));
  if (!found.has_value()) {
    console_->Say(absl::StrCat(why, ": no checkpoint in ",
                               config_.checkpoint.dir,
                               "; starting from the first step"));
    return absl::OkStatus();
  }
  progress_ = *found;
  saved_step_ = progress_.step;
  // The last step of an epoch may have fewer micro-batches.
  progress_.position =
      std::min(progress_.position, data_.train.loader->batches_per_epoch());
  console_->Say(absl::StrCat("resumed after step ", progress_.step, " (epoch ",
                             progress_.epoch, ", batch ", progress_.position,
                             ")"));
  if (done()) {
    console_->Say(DescribeNothingLeft(why, config_, total_steps_));
  }
  return absl::OkStatus();
}

absl::Status TrainingRun::OpenOutputs() {
  // Resumed runs are not refused: their remaining steps must still be trained.
  if (progress_.step == 0) {
    RETURN_IF_ERROR(StepTrace::Check(config_.output.trace, total_steps_));
  }
  ASSIGN_OR_RETURN(RunRecord record, DescribeTrainer(config_, worker_, spec_));
  record.step_bytes = step_bytes_;
  if (!config_.output.record_file.empty()) {
    ASSIGN_OR_RETURN(writer_, RecordWriter::Open(config_.output.record_file));
    RETURN_IF_ERROR(writer_->Write(record));
  }
  log_.emplace(worker_.device, writer_.get(),
               NonFiniteStepsToDiverge(config_.precision));
  log_->epoch_sums() = {progress_.epoch_loss, progress_.epoch_examples};
  return absl::OkStatus();
}

void TrainingRun::Announce() {
  if (config_.skip_communication) {
    console_->Say(
        "warning: --skip_communication: ranks exchange nothing; losses are not "
        "those of training, and nothing is evaluated");
  }
  console_->SayRank(DescribeRank(worker_));
  const TrainingLength length = {.dataset = data_.train.dataset->facts().name,
                                 .dataset_size = data_.train.dataset->size(),
                                 .global_batch = global_batch_,
                                 .steps = total_steps_};
  for (const std::string& line :
       DescribeTraining(config_, worker_, spec_, length)) {
    console_->Say(line);
  }
  const std::string warning = WarnOfSmallBatchNorm(config_, *model_);
  if (!warning.empty()) console_->Say(warning);
}

absl::Status TrainingRun::Write(const Record& record) {
  return writer_ == nullptr ? absl::OkStatus() : writer_->Write(record);
}

absl::Status TrainingRun::Train(const StepFunction& step,
                                const EvaluateFunction& evaluate,
                                const std::function<absl::Status()>& conclude) {
  Announce();
  RETURN_IF_ERROR(ReportRestart());
  const bool traces = !config_.output.trace.file.empty();
  const int64_t steps_left = total_steps_ - progress_.step;
  if (traces && steps_left <= StepTraffic::kWarmUpSteps) {
    console_->Say(
        absl::StrCat("no trace is written: tracing begins with the third step "
                     "after a start, and the run has ",
                     Counted(steps_left, "step"), " left"));
  } else if (traces) {
    RETURN_IF_ERROR(RunAndExplain("comparing the ranks' clocks", [&] {
      trace_ = std::make_unique<StepTrace>(config_.output.trace, worker_);
      return absl::OkStatus();
    }));
  }
  while (!done() && progress_.epoch <= config_.epochs) {
    absl::Status status = TrainEpoch(step);
    // Record the measurements even after a failure.
    absl::Status flushed =
        RunAndExplain("reading the last losses", [&] { return log_->Flush(); });
    RETURN_IF_ERROR(status);
    RETURN_IF_ERROR(flushed);
    if (preempted_) return EndPreempted();
    RETURN_IF_ERROR(
        RunAndExplain(absl::StrCat("the end of epoch ", progress_.epoch),
                      [&] { return FinishEpoch(evaluate); }));
  }
  console_->RunDone();
  if (trace_ != nullptr && !trace_->written()) {
    RETURN_IF_ERROR(WriteTrace());
  }
  RETURN_IF_ERROR(RunAndExplain("the end of the run", [&]() -> absl::Status {
    RETURN_IF_ERROR(FinishCheckpoints());
    if (conclude != nullptr) {
      RETURN_IF_ERROR(conclude());
    }
    const MemoryRecord memory = MeasureMemory();
    if (memory_meter_ != nullptr) console_->Say(DescribeMemory(memory));
    if (writer_ == nullptr) return absl::OkStatus();
    RETURN_IF_ERROR(writer_->Write(Record(memory)));
    return writer_->Close();
  }));
  if (trace_ == nullptr || trace_->file_status().ok()) return absl::OkStatus();
  // The exit code must report the missing trace.
  return absl::UnavailableError(
      absl::StrCat("the training is complete, but there is no trace: ",
                   trace_->file_status().message()));
}

MemoryRecord TrainingRun::MeasureMemory() {
  MemoryRecord record = MeasurePeakMemory(worker_);
  if (memory_meter_ == nullptr) return record;
  record.measured = memory_meter_->parts();
  record.computed = computed_memory_;
  return record;
}

absl::Status TrainingRun::WriteTrace() {
  return RunAndExplain("writing the trace", [&]() -> absl::Status {
    ASSIGN_OR_RETURN(std::string written, trace_->Write());
    console_->Say(written);
    return absl::OkStatus();
  });
}

absl::Status TrainingRun::TrainEpoch(const StepFunction& step) {
  RETURN_IF_ERROR(
      data_.train.loader->Resume({progress_.epoch, progress_.position}));
  const double start = SteadySeconds() - progress_.epoch_seconds;
  StepClock clock(worker_.device);
  while (!done() && !preempted_) {
    ScopedRange range;
    if (RangesOn())
      range = ScopedRange(absl::StrCat("step ", progress_.step + 1));
    clock.Begin(Phase::kDataWait);
    const absl::StatusOr<std::vector<Batch>> micro_batches =
        NextBatches(*data_.train.loader, config_.accumulate);
    if (!micro_batches.ok())
      return ExplainLoadingFailure(micro_batches.status(), worker_);
    if (micro_batches->empty()) break;
    RETURN_IF_ERROR(TrainStep(step, *micro_batches, clock));
    if (trace_ != nullptr && trace_->due()) {
      RETURN_IF_ERROR(WriteTrace());
    }
    progress_.epoch_seconds = SteadySeconds() - start;
    RETURN_IF_ERROR(AfterStep(CeilDiv(progress_.position, config_.accumulate)));
  }
  return absl::OkStatus();
}

bool TrainingRun::epoch_done() const {
  return progress_.position >= data_.train.loader->batches_per_epoch();
}

bool TrainingRun::EndsEpoch(int64_t step,
                            absl::Span<const Batch> micro_batches) const {
  const auto count = static_cast<int64_t>(micro_batches.size());
  return step == total_steps_ ||
         progress_.position + count >= data_.train.loader->batches_per_epoch();
}

absl::Status TrainingRun::TrainStep(const StepFunction& step,
                                    absl::Span<const Batch> micro_batches,
                                    StepClock& clock) {
  const int64_t number = progress_.step + 1;
  std::vector<uint64_t> seeds;
  for (size_t i = 0; i < micro_batches.size(); ++i) {
    seeds.push_back(DropoutSeed(config_.seed, number, worker_.data_rank(),
                                static_cast<int64_t>(i)));
  }
  return RunAndExplain(absl::StrCat("step ", number), [&]() -> absl::Status {
    tensor_exposed_.Take();  // from an evaluation
    context_exposed_.Take();
    const bool recorded = traffic_.Begin();
    const bool traced = trace_ != nullptr && trace_->Begin();
    if (memory_meter_ != nullptr)
      clock.set_observer([this](Phase phase) { memory_meter_->Enter(phase); });
    ASSIGN_OR_RETURN(
        StepOutcome outcome,
        step({number, EndsEpoch(number, micro_batches), micro_batches, seeds,
              learning_rate_.At(number), clock, traced, traced || recorded}));
    outcome.exposed_by_axis["tp"] = tensor_exposed_.Take();
    outcome.exposed_by_axis["cp"] = context_exposed_.Take();
    // Under fp16, a step with an infinite norm is only skipped.
    if (!outcome.gradient_norm.defined() &&
        optimizer_->grad_scaler() == nullptr)
      outcome.gradient_norm = optimizer_->gradient_norm();
    if (memory_meter_ != nullptr) memory_meter_->AfterStep();
    StepRecord record;
    record.rank = worker_.env.rank;
    record.step = number;
    record.epoch = progress_.epoch;
    // Part of the step, so that it ends after all of its communication.
    if (traced || recorded) clock.Begin(Phase::kBetween);
    StepCommunication seen = traffic_.End(record, clock.start_ns());
    clock.Begin(Phase::kEnd);
    progress_.step = number;
    progress_.position += static_cast<int64_t>(micro_batches.size());
    record.examples = CountExamples(micro_batches);
    step_examples_ = outcome.examples_of_all.value_or(record.examples *
                                                      worker_.data_ranks());
    if (trace_ != nullptr) trace_->End(number, clock, seen.events, outcome);
    StepClock finished = std::exchange(clock, StepClock(worker_.device));
    return log_->Add({record, std::move(outcome), std::move(finished),
                      std::move(seen.record)});
  });
}

absl::Status TrainingRun::AfterStep(int64_t step_in_epoch) {
  console_->StepDone(progress_.step, step_in_epoch, progress_.epoch,
                     step_examples_, log_->last_loss());
  const bool shows_loss = console_->ShowsLoss(step_in_epoch) || done();
  if (shows_loss) {
    RETURN_IF_ERROR(
        RunAndExplain("reading the loss", [&] { return log_->Flush(); }));
    console_->Loss(step_in_epoch, progress_.epoch, *log_->last_loss());
    ReportSkippedSteps();
  }
  // Ranks compare losses only after all of them have read theirs.
  if (shows_loss || !divergence_->compares_ranks()) {
    RETURN_IF_ERROR(RunAndExplain(
        absl::StrCat("comparing the losses up to step ", progress_.step),
        [&] { return CheckFinite(); }));
  }
  if (!save_points_.has_value() || done()) return absl::OkStatus();
  return RunAndExplain("saving a checkpoint", [&]() -> absl::Status {
    const SavePoints::Next next =
        save_points_->AfterStep(progress_.step, epoch_done());
    preempted_ = next == SavePoints::Next::kSaveAndEnd;
    return next == SavePoints::Next::kTrain ? absl::OkStatus()
                                            : SaveCheckpoint();
  });
}

// Checks the losses and norms read so far. Collective if ranks compare.
absl::Status TrainingRun::CheckFinite() {
  const NonFinite first = divergence_->First(log_->first_non_finite());
  if (first.step == 0) return absl::OkStatus();
  if (divergence_->stops()) return Diverged(Describe(first));
  if (std::exchange(warned_non_finite_, true)) return absl::OkStatus();
  console_->SayRank(absl::StrCat("warning: ", Describe(first),
                                 "; try a smaller --lr or --clip_grad_norm=1"));
  return WriteDivergence(Describe(first));
}

absl::Status TrainingRun::WriteDivergence(const std::string& cause) {
  return Write(DivergenceRecord{worker_.env.rank, progress_.step, cause});
}

// All ranks call this, with the same text.
absl::Status TrainingRun::Diverged(const std::string& what) {
  if (worker_.comm != nullptr && worker_.comm->job().has_peers())
    ForbidRestart(*worker_.comm->job().process_group()->getStore());
  std::string checkpoint;
  if (checkpoints_.has_value()) {
    RETURN_IF_ERROR(FinishCheckpoints());  // updates complete_step()
    const std::optional<int64_t>& step = checkpoints_->complete_step();
    checkpoint =
        step.has_value()
            ? absl::StrCat("the last finite checkpoint is that of step ", *step,
                           " in ", config_.checkpoint.dir)
            : "there is no finite checkpoint";
    checkpoint += "; ";
  }
  RETURN_IF_ERROR(WriteDivergence(what));
  return absl::AbortedError(
      absl::StrCat(what, "; ", checkpoint,
                   "try a smaller --lr or --clip_grad_norm=1, or train on with "
                   "--on_nan=continue"));
}

// Called at log lines, where the host waits for the device anyway.
void TrainingRun::ReportSkippedSteps() {
  const GradScaler* scaler = optimizer_->grad_scaler();
  if (scaler == nullptr || !worker_.is_first()) return;
  const int64_t skipped = scaler->skipped_steps();
  if (skipped == std::exchange(reported_skipped_, skipped)) return;
  console_->Say(absl::StrFormat(
      "fp16: %d steps skipped so far, as their gradients overflowed; the loss "
      "is now scaled by %g",
      skipped, scaler->scale()));
}

absl::Status TrainingRun::EvaluateEpoch(const EvaluateFunction& evaluate) {
  const std::string attempted =
      absl::StrCat("the evaluation after epoch ", progress_.epoch);
  std::optional<EvalRecord> result;
  RETURN_IF_ERROR(RunAndExplain(attempted, [&]() -> absl::Status {
    absl::StatusOr<EvalRecord> evaluated =
        evaluate != nullptr
            ? evaluate(data_, progress_.epoch)
            : Evaluate(*objective_, data_, worker_, progress_.epoch);
    if (evaluated.ok()) {
      result = *evaluated;
      return absl::OkStatus();
    }
    const absl::Status why = ExplainLoadingFailure(evaluated.status(), worker_);
    return absl::Status(why.code(),
                        absl::StrCat(attempted, " failed: ", why.message()));
  }));
  if (worker_.is_first()) {
    RETURN_IF_ERROR(Write(*result));
  }
  if (!std::isfinite(result->mean_loss) && divergence_->stops()) {
    return Diverged(absl::StrCat("the test loss after epoch ", progress_.epoch,
                                 " is ", NonFiniteText(result->mean_loss)));
  }
  console_->Evaluated(*result, spec_.loss == LossKind::kCrossEntropy);
  return absl::OkStatus();
}

absl::Status TrainingRun::FinishEpoch(const EvaluateFunction& evaluate) {
  const EpochSums sums = log_->epoch_sums();
  EpochRecord epoch;
  epoch.rank = worker_.env.rank;
  epoch.epoch = progress_.epoch;
  epoch.examples = sums.examples;
  epoch.mean_loss =
      sums.loss / static_cast<double>(std::max<int64_t>(sums.examples, 1));
  epoch.seconds = progress_.epoch_seconds;
  console_->EpochDone(epoch);
  RETURN_IF_ERROR(Write(epoch));
  if (config_.evaluate) {
    RETURN_IF_ERROR(EvaluateEpoch(evaluate));
  }
  if (epoch_done()) {
    progress_ = {.step = progress_.step, .epoch = progress_.epoch + 1};
    log_->epoch_sums() = EpochSums();
  }
  RETURN_IF_ERROR(SaveCheckpoint());
  const bool saved = checkpoints_.has_value() && saved_step_ == progress_.step;
  return saved ? checkpoints_->Export() : absl::OkStatus();
}

absl::Status TrainingRun::SaveCheckpoint() {
  if (!checkpoints_.has_value() || progress_.step == saved_step_)
    return absl::OkStatus();
  RETURN_IF_ERROR(log_->Flush());
  ASSIGN_OR_RETURN(const bool may_save, MaySave());
  if (!may_save) return absl::OkStatus();
  progress_.epoch_loss = log_->epoch_sums().loss;
  progress_.epoch_examples = log_->epoch_sums().examples;
  save_points_->Saved();
  saved_step_ = progress_.step;
  ASSIGN_OR_RETURN(std::optional<CheckpointRecord> saved,
                   checkpoints_->Save(progress_));
  return saved.has_value() ? Write(*saved) : absl::OkStatus();
}

// Returns whether all parameters are finite, so that a checkpoint may be saved.
// If not: false, with a warning, under OnNan::kContinue, otherwise an error.
absl::StatusOr<bool> TrainingRun::MaySave() {
  RETURN_IF_ERROR(CheckFinite());
  const absl::Status finite = checkpoints_->CheckFinite(progress_.step);
  if (!absl::IsOutOfRange(finite)) {
    RETURN_IF_ERROR(finite);
    return true;
  }
  const std::string what(finite.message());
  if (divergence_->stops()) return Diverged(what);
  console_->Say(absl::StrCat("warning: no checkpoint is saved: ", what));
  RETURN_IF_ERROR(WriteDivergence(what));
  return false;
}

absl::Status TrainingRun::FinishCheckpoints() {
  if (!checkpoints_.has_value()) return absl::OkStatus();
  ASSIGN_OR_RETURN(std::optional<CheckpointRecord> saved,
                   checkpoints_->Finish());
  return saved.has_value() ? Write(*saved) : absl::OkStatus();
}

absl::Status TrainingRun::ReportRestart() {
  if (restart_ == 0 || !worker_.is_first()) return absl::OkStatus();
  const RestartRecord record = RestartNow(worker_.env, restart_, progress_);
  console_->Say(DescribeRestart(record));
  return Write(record);
}

// The exit code lets the scheduler distinguish this end from a failure.
absl::Status TrainingRun::EndPreempted() {
  RETURN_IF_ERROR(RunAndExplain("saving the last checkpoint",
                                [&] { return FinishCheckpoints(); }));
  if (trace_ != nullptr && !trace_->written()) {
    // The checkpoint is safe: a failure to write the trace does not change the
    // outcome.
    if (const absl::Status traced = WriteTrace(); !traced.ok()) {
      console_->SayRank(absl::StrCat("warning: no trace: ", traced.message()));
    }
  }
  if (writer_ != nullptr) {
    RETURN_IF_ERROR(writer_->Close());
  }
  return absl::CancelledError(absl::StrCat(
      "ended by a signal after step ", progress_.step,
      saved_step_ == progress_.step ? ", which is saved"
                                    : ", whose parameters are not finite and "
                                      "are not saved",
      "; continue with --resume"));
}

}  // namespace rankwise
