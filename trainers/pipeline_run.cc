#include "trainers/pipeline_run.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "parallel/comm/communicator.h"
#include "parallel/pipeline/communication.h"
#include "parallel/pipeline/measure_link.h"
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

// Tags of messages beside the executor's.
constexpr int kFirstTieTag = 1 << 30;

std::vector<torch::Tensor> Without(std::vector<torch::Tensor> tensors,
                                   const std::vector<torch::Tensor>& others) {
  const auto is_other = [&](const torch::Tensor& tensor) {
    return std::any_of(others.begin(), others.end(),
                       [&](auto& other) { return other.is_same(tensor); });
  };
  tensors.erase(std::remove_if(tensors.begin(), tensors.end(), is_other),
                tensors.end());
  return tensors;
}

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

absl::Status PipelineRun::LayOut() {
  if (worker_.device.is_cuda() && worker_.comm->backend() == "gloo" &&
      worker_.env.world_size > 1) {
    return absl::FailedPreconditionError(absl::StrCat(
        "stages on ", worker_.device.str(),
        " under the backend gloo: Gloo "
        "sends memory of the host only; give every rank a GPU of its own "
        "(--backend=nccl), or --device=cpu"));
  }
  absl::StatusOr<MeshLayout> layout =
      LayOutPipelines(pipeline_, worker_.env.world_size);
  if (!layout.ok()) return layout.status();
  worker_.shards = layout->size("pp");
  absl::StatusOr<std::unique_ptr<DeviceMesh>> mesh =
      DeviceMesh::Create(*worker_.comm, *layout);
  if (!mesh.ok()) return mesh.status();
  mesh_ = std::move(*mesh);
  return absl::OkStatus();
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
      pipeline_.schedule, {.num_ranks = worker_.shards,
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

absl::Status PipelineRun::CreateTraining() {
  const std::vector<int> mine =
      schedules_.begin()->second.StagesOf(worker_.shard());
  ModelPlacement placement;
  placement.reads_data = false;
  for (int stage : mine) {
    const LayerRange& layers = stage_layers_[static_cast<size_t>(stage)];
    placement.layers.push_back(layers);
    if (layers.begin == 0 || layers.end == spec_.layers.size())
      placement.reads_data = true;
  }
  absl::StatusOr<std::unique_ptr<TrainingRun>> training =
      TrainingRun::Create(config_, worker_, placement);
  if (!training.ok()) return training.status();
  training_ = std::move(*training);
  training_->EvaluateBy([this](TrainingData& data, int64_t epoch) {
    return EvaluateTestSet(data, epoch);
  });
  stages_.resize(stage_layers_.size());
  for (int stage : mine) {
    stages_[static_cast<size_t>(stage)] = std::make_unique<ModelStage>(
        training_->model(), spec_,
        ModelStageConfig{.layers = stage_layers_[static_cast<size_t>(stage)],
                         .device = worker_.device,
                         .precision = config_.precision});
  }
  FindSharedWeights();
  return absl::OkStatus();
}

void PipelineRun::FindSharedWeights() {
  const auto parameters = training_->model().named_parameters();
  const int here = worker_.shard();
  for (size_t i = 0; i < spec_.ties.size(); ++i) {
    const TiedWeight& tie = spec_.ties[i];
    const int owner = RankOf(tie.owner), user = RankOf(tie.user);
    if (here != owner && here != user) continue;
    if (owner == user) {
      shared_here_.push_back(parameters[tie.name]);
      continue;
    }
    const int peer = here == owner ? user : owner;
    shared_with_peers_.push_back(
        {parameters[here == owner ? tie.name : tie.copy_name],
         mesh_->Line("pp")[static_cast<size_t>(peer)],
         kFirstTieTag + static_cast<int>(i)});
  }
  own_parameters_.resize(stages_.size());
  for (size_t stage = 0; stage < stages_.size(); ++stage) {
    if (stages_[stage] != nullptr) {
      own_parameters_[stage] =
          Without(stages_[stage]->Parameters(), shared_here_);
    }
  }
}

absl::Status PipelineRun::ConnectStages() {
  replica_gradients_.emplace(mesh_->group("dp"), mesh_->size("dp"),
                             config_.skip_communication);
  std::vector<Stage*> stages;
  for (const auto& stage : stages_) stages.push_back(stage.get());
  ExecutorConfig config;
  config.device = worker_.device;
  config.recompute = pipeline_.recompute;
  config.skip_communication = config_.skip_communication;
  config.on_gradients_ready = [this](int stage) {
    replica_gradients_->Start(own_parameters_[static_cast<size_t>(stage)]);
  };
  executor_ = std::make_unique<PipelineExecutor>(
      worker_.comm->process_group(), mesh_->Line("pp"), worker_.shard(),
      std::move(stages), std::move(config));

  std::vector<double> output_bytes;
  for (const LayerRange& layers : stage_layers_)
    output_bytes.push_back(static_cast<double>(
        OutputBytes(spec_, layers, config_.data.batch_size)));
  const LinkCosts link =
      MeasureLink(worker_.comm->process_group(), mesh_->Line("pp"),
                  worker_.shard(), worker_.device,
                  static_cast<int64_t>(*std::max_element(output_bytes.begin(),
                                                         output_bytes.end())));
  meter_.emplace(schedules_.at(static_cast<size_t>(pipeline_.micro_batches)),
                 output_bytes, link, worker_);

  std::vector<std::string> copies;
  for (const TiedWeight& copy : training_->model().copies())
    copies.push_back(copy.copy_name);
  if (worker_.shards > 1 && !config_.skip_communication) {
    training_->optimizer().ShareNorm(
        [this](torch::Tensor& squared_norm) {
          std::vector<torch::Tensor> sum = {squared_norm.to(worker_.device)};
          mesh_->group("pp")->allreduce(sum)->wait();
          squared_norm.copy_(sum[0]);
        },
        copies);
  }
  return absl::OkStatus();
}

absl::Status PipelineRun::Train() {
  training_->Say(
      StageTable(spec_, stage_layers_, config_.data.batch_size, profile_));
  training_->AtEnd([this] { return Finish(); });
  training_->AddToTrace([this] { return PredictedTrace(); });
  return training_->Train(
      [this](const StepInput& input) { return Step(input); });
}

absl::Status PipelineRun::Finish() {
  if (!TimesHold()) {
    training_->Say(
        "no utilisation or bubble: on CUDA the host's clock knows when "
        "an action was issued, not when it ran");
    return absl::OkStatus();
  }
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

absl::StatusOr<StepOutcome> PipelineRun::Step(const StepInput& input) {
  absl::StatusOr<const Schedule*> schedule =
      ScheduleFor(input.micro_batches.size());
  if (!schedule.ok()) return schedule.status();
  const auto share = [&](int micro_batch, const torch::Tensor& output) {
    const Batch& batch = input.micro_batches[static_cast<size_t>(micro_batch)];
    return ShareOfMean(Loss(spec_.loss, output, batch.target), batch,
                       input.micro_batches);
  };
  for (const auto& stage : stages_) {
    if (stage == nullptr) continue;
    stage->Begin(input.micro_batches,
                 {input.dropout_seeds.begin(), input.dropout_seeds.end()},
                 share);
  }
  input.clock.Begin(Phase::kSchedule);
  const ExecutorStep step = executor_->Run(**schedule);
  replica_gradients_->Start(shared_here_);
  const double exposed = replica_gradients_->Finish() + AddUpTiedGradients();
  input.clock.Begin(Phase::kOptimizer);
  training_->optimizer().Step(input.learning_rate);
  training_->optimizer().ZeroGrad();

  input.clock.Begin(Phase::kBetween);
  worker_.comm->StopTraffic();  // what the meter asks is not the step's
  if (TimesHold()) {
    absl::StatusOr<ScheduleRecord> record =
        meter_->Add(input.step, **schedule, step);
    if (!record.ok()) return record.status();
    absl::Status written = training_->Write(*record);
    if (!written.ok()) return written;
  }
  const Extent extent = ExtentOf(step.spans);
  std::vector<TraceSpan> actions;
  if (input.traced) {
    actions = TraceOf(step.spans);
    if (input.micro_batches.size() ==
        static_cast<size_t>(pipeline_.micro_batches))
      traced_start_seconds_ = extent.start_seconds;
  }
  return StepOutcome{.loss = step.loss,
                     .exposed_comm_seconds = exposed,
                     .wait_seconds = step.wait_seconds(),
                     .forward_seconds = extent.forward_seconds,
                     .backward_seconds = extent.backward_seconds,
                     .trace = std::move(actions)};
}

std::vector<TraceSpan> PipelineRun::TraceOf(
    const std::vector<Span>& spans) const {
  // When a kernel was launched says little about when it ran.
  const char* const lane = TimesHold() ? kComputeLane : "launched by the host";
  std::vector<TraceSpan> bars;
  for (const Span& span : spans) {
    if (IsCompute(span.action.kind)) bars.push_back(ToTraceSpan(span, lane));
  }
  return bars;
}

// Beside the last full step that was traced, as it should have been.
absl::StatusOr<std::vector<TraceProcess>> PipelineRun::PredictedTrace() {
  std::vector<TraceProcess> processes;
  if (!TimesHold() || traced_start_seconds_ == 0) return processes;
  const absl::StatusOr<Timeline> prediction = meter_->Predict();
  if (!prediction.ok()) return prediction.status();
  const double first = ExtentOf(prediction->ranks[0]).start_seconds;
  processes.push_back(ToTraceProcess({"predicted", &*prediction}, 0,
                                     traced_start_seconds_ - first));
  return processes;
}

int PipelineRun::RankOf(size_t layer) const {
  for (size_t stage = 0; stage < stage_layers_.size(); ++stage) {
    if (stage_layers_[stage].contains(layer))
      return schedules_.begin()->second.rank_of_stage[stage];
  }
  return -1;
}

// Both ranks of a tied weight end with the gradient of all its uses. Returns
// the seconds that it took.
double PipelineRun::AddUpTiedGradients() {
  if (config_.skip_communication) return 0;
  const double start = Now();
  for (SharedWeight& shared : shared_with_peers_) {
    AddUpSharedGradient(*worker_.comm->process_group(), shared.peer, shared.tag,
                        shared.weight.mutable_grad());
  }
  return Now() - start;
}

absl::StatusOr<EvalRecord> PipelineRun::EvaluateTestSet(TrainingData& data,
                                                        int64_t epoch) {
  EvaluationMode evaluation_mode(training_->model());
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
      sums.Add(output, batches[static_cast<size_t>(micro_batch)].target);
      return output;
    };
    for (const auto& stage : stages_) {
      if (stage == nullptr) continue;
      stage->Begin(batches, std::vector<uint64_t>(batches.size()), count);
    }
    executor_->RunForward(static_cast<int>(batches.size()));
  }
  return sums.Finish(data, worker_, epoch);
}

}  // namespace rankwise
