#include "trainers/stages/pipeline_stages.h"

#include <ATen/ops/zeros.h>
#include <c10/util/accumulate.h>

#include <iterator>
#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "parallel/ddp/model_state.h"
#include "parallel/pipeline/engine/transport.h"
#include "parallel/tensor/sum_gradients.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"
#include "trainers/loop/objective.h"

namespace rankwise {
namespace {

// Above the tags of the executor, which count its messages from 0, and within
// the limit that MPI guarantees, 32,767. If a schedule has that many messages,
// those with equal tags are still received in the order in which they are sent.
constexpr int kFirstTieTag = 1 << 14;

bool IsAmong(const torch::Tensor& tensor,
             const std::vector<torch::Tensor>& others) {
  return absl::c_any_of(others,
                        [&](auto& other) { return other.is_same(tensor); });
}

std::vector<torch::Tensor> Without(std::vector<torch::Tensor> tensors,
                                   const std::vector<torch::Tensor>& others) {
  std::erase_if(tensors, [&](auto& each) { return IsAmong(each, others); });
  return tensors;
}

std::vector<torch::Tensor> Among(std::vector<torch::Tensor> tensors,
                                 const std::vector<torch::Tensor>& others) {
  std::erase_if(tensors, [&](auto& each) { return !IsAmong(each, others); });
  return tensors;
}

// Returns whether the layers of `range` own the parameter `name`; tied weights
// of other layers do not count.
bool BelongsTo(const ModelSpec& spec, const LayerRange& range,
               const std::string& name) {
  for (size_t layer = range.begin; layer < range.end; ++layer) {
    if (absl::StartsWith(name, absl::StrCat(spec.layers[layer].name, ".")))
      return true;
  }
  return false;
}

// Returns the parameters that the layers of `range` use: their own, and weights
// of other layers that they are tied to.
std::vector<torch::Tensor> ParametersOf(const Model& model,
                                        const ModelSpec& spec,
                                        const LayerRange& range) {
  std::vector<torch::Tensor> parameters;
  for (const auto& entry : model.named_parameters()) {
    const bool tied = absl::c_any_of(spec.ties, [&](const TiedWeight& tie) {
      return range.contains(tie.user) && entry.key() == tie.name;
    });
    if (tied || BelongsTo(spec, range, entry.key()))
      parameters.push_back(entry.value());
  }
  return parameters;
}

std::vector<torch::Tensor> BuffersOf(const Model& model,
                                     const LayerRange& range) {
  std::vector<torch::Tensor> buffers;
  for (size_t layer = range.begin; layer < range.end; ++layer)
    absl::c_move(model.BuffersOf(layer), std::back_inserter(buffers));
  return buffers;
}

// Returns one example of input for the layers of `config`: the first of `data`
// if they are the model's first, else zeros of its input_type.
torch::Tensor ExampleInput(const ModelSpec& spec,
                           const ModelStageConfig& config,
                           const Dataset& data) {
  if (config.layers.begin == 0) {
    const torch::Tensor first = data.Gather({0}).data;
    // Images, which batches hold in normalised form.
    return first.scalar_type() == at::kByte ? first.to(at::kFloat) : first;
  }
  std::vector<int64_t> shape = spec.layers[config.layers.begin - 1].part_shape;
  shape.insert(shape.begin(), 1);
  return at::zeros(shape, config.input_type);
}

}  // namespace

torch::Tensor TryForward(Model& model, const ModelStageConfig& config,
                         const torch::Tensor& input) {
  const EvaluationMode evaluation_mode(model);
  const AutocastScope autocast(config.precision, config.device.type());
  return model.Forward(input.to(config.device), config.layers);
}

ModelStage::ModelStage(Model& model, const ModelSpec& spec,
                       ModelStageConfig config)
    : model_(model),
      spec_(spec),
      config_(config),
      parameters_(ParametersOf(model, spec, config.layers)),
      buffers_(BuffersOf(model, config.layers)) {}

void ModelStage::Begin(absl::Span<const Batch> micro_batches,
                       std::vector<uint64_t> dropout_seeds, Finish finish) {
  micro_batches_ = micro_batches;
  dropout_seeds_ = std::move(dropout_seeds);
  finish_ = std::move(finish);
}

torch::Tensor ModelStage::Forward(int micro_batch, const torch::Tensor& input) {
  const size_t i = static_cast<size_t>(micro_batch);
  AutocastScope autocast(config_.precision, config_.device.type());
  model_.set_dropout_seed(dropout_seeds_[i]);
  const torch::Tensor& source = is_first() ? micro_batches_[i].data : input;
  torch::Tensor output =
      model_.Forward(source.to(config_.device), config_.layers);
  if (is_last()) output = finish_(micro_batch, output);
  if (after_forward_ == nullptr) return output;
  after_forward_();
  if (output.requires_grad())
    output.register_hook([this](const torch::Tensor&) { after_forward_(); });
  return output;
}

std::vector<int64_t> ModelStage::ShapeAfter(size_t layer,
                                            int micro_batch) const {
  std::vector<int64_t> shape = {
      micro_batches_[static_cast<size_t>(micro_batch)].target.size(0)};
  const std::vector<int64_t>& example = spec_.layers[layer].part_shape;
  shape.insert(shape.end(), example.begin(), example.end());
  return shape;
}

std::vector<int64_t> ModelStage::InputShape(int micro_batch) const {
  return ShapeAfter(config_.layers.begin - 1, micro_batch);
}

std::vector<int64_t> ModelStage::OutputShape(int micro_batch) const {
  return ShapeAfter(config_.layers.end - 1, micro_batch);
}

PipelineStages::PipelineStages(const TrainConfig& config, const Worker& worker,
                               const PipelinePlan& plan, Model& model,
                               const Dataset& data,
                               FullyShardedDataParallel* sharded)
    : config_(config),
      worker_(worker),
      plan_(plan),
      model_(model),
      sharded_(sharded) {
  FindOutputTypes(data);
  for (size_t stage = 0; stage < plan_.stages().size(); ++stage) {
    output_bytes_.push_back(static_cast<double>(
        OutputBytes(plan_.model(), plan_.stages()[stage],
                    config_.data.batch_size, output_types_[stage])));
    stages_.push_back(plan_.IsHere(static_cast<int>(stage))
                          ? std::make_unique<ModelStage>(model_, plan_.model(),
                                                         ConfigOf(stage))
                          : nullptr);
  }
  Connect();
}

ModelStageConfig PipelineStages::ConfigOf(size_t stage) const {
  return {.layers = plan_.stages()[stage],
          .device = plan_.DeviceOf(plan_.rank_of_stage()[stage]),
          .precision = config_.precision,
          .input_type = stage == 0 ? torch::kFloat : output_types_[stage - 1],
          .output_type = output_types_[stage]};
}

// The output types under autocast are known only by running: each stage in turn
// runs one example, and its rank broadcasts the type.
void PipelineStages::FindOutputTypes(const Dataset& data) {
  const size_t num_stages = plan_.stages().size();
  output_types_.assign(num_stages, torch::kFloat);
  if (config_.precision == Precision::kFp32) return;
  for (size_t stage = 0; stage + 1 < num_stages; ++stage) {
    at::Tensor type = at::zeros({}, at::kLong);
    if (plan_.IsHere(static_cast<int>(stage))) {
      const ModelStageConfig config = ConfigOf(stage);
      type.fill_(static_cast<int64_t>(
          TryForward(model_, config, ExampleInput(plan_.model(), config, data))
              .scalar_type()));
    }
    if (worker_.size("pp") > 1) {
      std::vector<at::Tensor> shared = {type.to(worker_.device)};
      c10d::BroadcastOptions options;
      options.rootRank = plan_.rank_of_stage()[stage];
      worker_.mesh->group("pp")
          .process_group()
          ->broadcast(shared, options)
          ->wait();
      type = shared[0];
    }
    output_types_[stage] = static_cast<at::ScalarType>(type.item<int64_t>());
  }
}

void PipelineStages::FindSharedWeights() {
  const auto parameters = model_.named_parameters();
  const std::vector<TiedWeight>& ties = plan_.model().ties;
  const int here = worker_.coordinate("pp");
  for (size_t i = 0; i < ties.size(); ++i) {
    const TiedWeight& tie = ties[i];
    const int owner = plan_.RankOf(tie.owner), user = plan_.RankOf(tie.user);
    if (here != owner && here != user) continue;
    if (owner == user) {
      shared_here_.push_back(parameters[tie.name]);
      continue;
    }
    const int peer = here == owner ? user : owner;
    shared_with_peers_.push_back(
        {parameters[here == owner ? tie.name : tie.copy_name], peer,
         kFirstTieTag + static_cast<int>(i)});
  }
  own_parameters_.resize(stages_.size());
  partial_gradient_parameters_.resize(stages_.size());
  for (size_t stage = 0; stage < stages_.size(); ++stage) {
    if (stages_[stage] != nullptr) {
      own_parameters_[stage] =
          Without(stages_[stage]->Parameters(), shared_here_);
      partial_gradient_parameters_[stage] =
          Among(model_.partial_gradient_parameters(), own_parameters_[stage]);
    }
  }
}

std::vector<Stage*> PipelineStages::Pointers() const {
  std::vector<Stage*> stages;
  for (const auto& stage : stages_) stages.push_back(stage.get());
  return stages;
}

void PipelineStages::Connect() {
  const auto largest_bytes =
      static_cast<int64_t>(*absl::c_max_element(output_bytes_));
  ExecutorConfig config;
  config.rank_of_stage = plan_.rank_of_stage();
  config.recompute = plan_.config().recompute;
  config.skip_communication = config_.skip_communication;
  if (plan_.in_one_process()) {
    config.devices = worker_.devices;
    executor_ = std::make_unique<PipelineExecutor>(Pointers(), config);
    link_ = MeasureCopies(worker_.devices, largest_bytes);
    return;
  }
  FindSharedWeights();
  if (sharded_ == nullptr) {
    own_gradients_ = std::make_unique<AllReduceSync>(
        worker_.dp_size() * worker_.size("cp") > 1
            ? worker_.mesh->group("dp_cp")
            : Group(),
        config_.skip_communication);
  }
  replica_gradients_ = sharded_ != nullptr
                           ? static_cast<GradientSync*>(sharded_)
                           : own_gradients_.get();
  config.devices = {worker_.device};
  config.on_gradients_ready = [this](int stage) {
    SynchronizeGradients(stage);
  };
  const Group& pipeline = worker_.mesh->group("pp");
  executor_ = std::make_unique<PipelineExecutor>(pipeline, Pointers(), config);
  link_ = MeasureLink(pipeline, worker_.device, largest_bytes);
}

void PipelineStages::SynchronizeGradients(int stage) {
  const auto index = static_cast<size_t>(stage);
  SumGradients(partial_gradient_parameters_[index], model_.parallel().tensor);
  replica_gradients_->Start(own_parameters_[index]);
}

void PipelineStages::Begin(absl::Span<const Batch> micro_batches,
                           const std::vector<uint64_t>& dropout_seeds,
                           const ModelStage::Finish& finish) {
  for (const auto& stage : stages_) {
    if (stage != nullptr) stage->Begin(micro_batches, dropout_seeds, finish);
  }
}

void PipelineStages::CallAfterForward(const std::function<void()>& call) {
  for (const auto& stage : stages_) {
    if (stage != nullptr) stage->set_after_forward(call);
  }
}

std::vector<ExecutorStep> PipelineStages::Run(const Schedule& schedule) {
  return executor_->Run(schedule);
}

void PipelineStages::RunForward(int micro_batches) {
  executor_->RunForward(micro_batches);
}

PendingDuration PipelineStages::BroadcastBuffers() {
  if (plan_.in_one_process() || config_.skip_communication) return 0;
  if (sharded_ != nullptr) {
    sharded_->BeforeForward();
    return 0;
  }
  return BroadcastFromFirst(model_.buffers(), worker_.mesh->group("dp"));
}

std::map<std::string, PendingDuration> PipelineStages::ExchangeGradients() {
  std::map<std::string, PendingDuration> exposed;
  if (plan_.in_one_process()) return exposed;
  replica_gradients_->Start(shared_here_);
  exposed["dp"] = replica_gradients_->Finish();
  if (config_.skip_communication || shared_with_peers_.empty()) return exposed;
  // Both ranks of a tied weight end with the gradient of all its uses.
  DeviceEvent start(worker_.device);
  for (SharedWeight& shared : shared_with_peers_) {
    // The tensor that the update will use.
    torch::Tensor weight =
        sharded_ == nullptr ? shared.weight : sharded_->RowsOf(shared.weight);
    SumSharedGradient(worker_.mesh->group("pp"), shared.peer, shared.tag,
                      weight);
  }
  exposed["pp"] =
      PendingDuration(std::move(start), DeviceEvent(worker_.device));
  return exposed;
}

int64_t PipelineStages::BytesOf(const Action& send) const {
  const ModelStage& stage = *stages_[static_cast<size_t>(send.stage)];
  const bool forward = send.kind == ActionKind::kSendForward;
  const auto type = forward ? stage.OutputType() : stage.InputType();
  const auto bytes = static_cast<int64_t>(c10::elementSize(type));
  if (config_.skip_communication) return bytes;  // of one number
  return bytes *
         c10::multiply_integers(forward ? stage.OutputShape(send.micro_batch)
                                        : stage.InputShape(send.micro_batch));
}

}  // namespace rankwise
