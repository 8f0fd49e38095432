// The part of PipelineRun that lays out ranks, stages and what connects them.
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "parallel/comm/communicator.h"
#include "parallel/pipeline/measure_copies.h"
#include "parallel/pipeline/measure_link.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"
#include "trainers/pipeline_run.h"
#include "trainers/stage_profile.h"
#include "trainers/stage_split.h"

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

absl::Status PipelineRun::LayOut() {
  if (!in_one_process()) return LayOutProcesses();
  for (int rank = 0; rank < pipeline_size(); ++rank) ranks_.push_back(rank);
  return absl::OkStatus();
}

absl::Status PipelineRun::LayOutProcesses() {
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
  ranks_ = {worker_.shard()};
  return absl::OkStatus();
}

absl::Status PipelineRun::CreateTraining() {
  const Schedule& schedule = schedules_.begin()->second;
  std::vector<int> mine;
  for (int rank : ranks_) {
    const std::vector<int> of_rank = schedule.StagesOf(rank);
    mine.insert(mine.end(), of_rank.begin(), of_rank.end());
  }
  ModelPlacement placement;
  placement.reads_data = false;
  for (int stage : mine) {
    const LayerRange& layers = stage_layers_[static_cast<size_t>(stage)];
    if (!in_one_process()) placement.layers.push_back(layers);
    if (layers.begin == 0 || layers.end == spec_.layers.size())
      placement.reads_data = true;
  }
  for (size_t layer = 0; in_one_process() && layer < spec_.layers.size();
       ++layer)
    placement.devices.push_back(DeviceOf(RankOf(layer)));
  absl::StatusOr<std::unique_ptr<TrainingRun>> training =
      TrainingRun::Create(config_, worker_, placement);
  if (!training.ok()) return training.status();
  training_ = std::move(*training);
  training_->EvaluateBy([this](TrainingData& data, int64_t epoch) {
    return EvaluateTestSet(data, epoch);
  });
  FindOutputTypes(mine);
  stages_.resize(stage_layers_.size());
  for (int index : mine) {
    const auto stage = static_cast<size_t>(index);
    stages_[stage] = std::make_unique<ModelStage>(training_->model(), spec_,
                                                  StageConfig(stage));
  }
  if (!in_one_process()) FindSharedWeights();
  return absl::OkStatus();
}

ModelStageConfig PipelineRun::StageConfig(size_t stage) const {
  const Schedule& schedule = schedules_.begin()->second;
  return {.layers = stage_layers_[stage],
          .device = DeviceOf(schedule.rank_of_stage[stage]),
          .precision = config_.precision,
          .input_type = stage == 0 ? torch::kFloat : output_types_[stage - 1],
          .output_type = output_types_[stage]};
}

// Which types the layers hand on under autocast shows when they run: each stage
// in turn tries it on one example, and its rank tells the others.
void PipelineRun::FindOutputTypes(const std::vector<int>& stages_here) {
  output_types_.assign(stage_layers_.size(), torch::kFloat);
  if (config_.precision == Precision::kFp32) return;
  const std::vector<int>& ranks = schedules_.begin()->second.rank_of_stage;
  for (size_t stage = 0; stage + 1 < stage_layers_.size(); ++stage) {
    at::Tensor type = at::zeros({}, at::kLong);
    if (std::count(stages_here.begin(), stages_here.end(),
                   static_cast<int>(stage)) > 0) {
      const ModelStageConfig config = StageConfig(stage);
      type.fill_(static_cast<int64_t>(
          TryForward(training_->model(), config,
                     ExampleInput(spec_, config, *training_->data().train))
              .scalar_type()));
    }
    if (!in_one_process() && worker_.shards > 1) {
      std::vector<at::Tensor> shared = {type.to(worker_.device)};
      c10d::BroadcastOptions options;
      options.rootRank = ranks[stage];
      mesh_->group("pp")->broadcast(shared, options)->wait();
      type = shared[0];
    }
    output_types_[stage] = static_cast<at::ScalarType>(type.item<int64_t>());
  }
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
  std::vector<Stage*> stages;
  for (const auto& stage : stages_) stages.push_back(stage.get());
  std::vector<double> output_bytes;
  for (size_t stage = 0; stage < stage_layers_.size(); ++stage)
    output_bytes.push_back(static_cast<double>(
        OutputBytes(spec_, stage_layers_[stage], config_.data.batch_size,
                    output_types_[stage])));
  const auto largest = static_cast<int64_t>(
      *std::max_element(output_bytes.begin(), output_bytes.end()));
  const LinkCosts link = in_one_process()
                             ? ConnectDevices(std::move(stages), largest)
                             : ConnectProcesses(std::move(stages), largest);
  meter_.emplace(schedules_.at(static_cast<size_t>(pipeline_.micro_batches)),
                 output_bytes, link, worker_, ranks_);
  AnchorClocks();
  return absl::OkStatus();
}

LinkCosts PipelineRun::ConnectDevices(std::vector<Stage*> stages,
                                      int64_t bytes) {
  LocalExecutorConfig config;
  config.devices = worker_.devices;
  config.rank_of_stage = schedules_.begin()->second.rank_of_stage;
  config.recompute = pipeline_.recompute;
  config.skip_communication = config_.skip_communication;
  local_executor_ =
      std::make_unique<LocalExecutor>(std::move(stages), std::move(config));
  return MeasureCopies(worker_.devices, bytes);
}

LinkCosts PipelineRun::ConnectProcesses(std::vector<Stage*> stages,
                                        int64_t bytes) {
  replica_gradients_.emplace(mesh_->group("dp"), mesh_->size("dp"),
                             config_.skip_communication);
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
  if (worker_.shards > 1 && !config_.skip_communication) ShareNorm();
  return MeasureLink(worker_.comm->process_group(), mesh_->Line("pp"),
                     worker_.shard(), worker_.device, bytes);
}

void PipelineRun::ShareNorm() {
  std::vector<std::string> copies;
  for (const TiedWeight& copy : training_->model().copies())
    copies.push_back(copy.copy_name);
  training_->optimizer().ShareNorm(
      [this](torch::Tensor& squared_norm) {
        std::vector<torch::Tensor> sum = {squared_norm.to(worker_.device)};
        mesh_->group("pp")->allreduce(sum)->wait();
        squared_norm.copy_(sum[0]);
      },
      copies);
}

int PipelineRun::RankOf(size_t layer) const {
  for (size_t stage = 0; stage < stage_layers_.size(); ++stage) {
    if (stage_layers_[stage].contains(layer))
      return schedules_.begin()->second.rank_of_stage[stage];
  }
  return -1;
}

}  // namespace rankwise
