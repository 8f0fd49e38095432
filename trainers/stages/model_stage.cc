#include "trainers/stages/model_stage.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "trainers/loop/objective.h"

namespace rankwise {
namespace {

bool UsesTied(const ModelSpec& spec, const LayerRange& range,
              const std::string& parameter) {
  for (const TiedWeight& tie : spec.ties) {
    if (range.contains(tie.user) && parameter == tie.name) return true;
  }
  return false;
}

bool BelongsTo(const LayerSpec& layer, const std::string& name) {
  return absl::StartsWith(name, absl::StrCat(layer.name, "."));
}

std::vector<torch::Tensor> BuffersOf(const Model& model, const ModelSpec& spec,
                                     const LayerRange& range) {
  std::vector<torch::Tensor> buffers;
  for (const auto& entry : model.named_buffers()) {
    for (size_t layer = range.begin; layer < range.end; ++layer) {
      if (BelongsTo(spec.layers[layer], entry.key()))
        buffers.push_back(entry.value());
    }
  }
  return buffers;
}

}  // namespace

torch::Tensor ExampleInput(const ModelSpec& spec,
                           const ModelStageConfig& config,
                           const Dataset& data) {
  if (config.layers.begin == 0) {
    const torch::Tensor first = data.Gather({0}).data;
    // Images, which batches hold normalised.
    return first.scalar_type() == at::kByte ? first.to(at::kFloat) : first;
  }
  std::vector<int64_t> shape =
      spec.layers[config.layers.begin - 1].output_shape;
  shape.insert(shape.begin(), 1);
  return at::zeros(shape, config.input_type);
}

torch::Tensor TryForward(Model& model, const ModelStageConfig& config,
                         const torch::Tensor& input) {
  const at::NoGradGuard no_grad;
  const bool was_training = model.is_training();
  model.eval();
  torch::Tensor output;
  {
    AutocastScope autocast(config.precision, config.device.type());
    output = model.Forward(input.to(config.device), config.layers);
  }
  model.train(was_training);
  return output;
}

std::vector<torch::Tensor> ParametersOf(const Model& model,
                                        const ModelSpec& spec,
                                        const LayerRange& range) {
  std::vector<torch::Tensor> parameters;
  for (const auto& entry : model.named_parameters()) {
    bool used = UsesTied(spec, range, entry.key());
    for (size_t layer = range.begin; layer < range.end; ++layer) {
      used = used || BelongsTo(spec.layers[layer], entry.key());
    }
    if (used) parameters.push_back(entry.value());
  }
  return parameters;
}

ModelStage::ModelStage(Model& model, const ModelSpec& spec,
                       ModelStageConfig config)
    : model_(model),
      spec_(spec),
      config_(config),
      parameters_(ParametersOf(model, spec, config.layers)),
      buffers_(BuffersOf(model, spec, config.layers)) {}

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
  return is_last() ? finish_(micro_batch, output) : output;
}

std::vector<int64_t> ModelStage::ShapeAfter(size_t layer,
                                            int micro_batch) const {
  std::vector<int64_t> shape = {
      micro_batches_[static_cast<size_t>(micro_batch)].target.size(0)};
  const std::vector<int64_t>& example = spec_.layers[layer].output_shape;
  shape.insert(shape.end(), example.begin(), example.end());
  return shape;
}

std::vector<int64_t> ModelStage::InputShape(int micro_batch) const {
  return ShapeAfter(config_.layers.begin - 1, micro_batch);
}

std::vector<int64_t> ModelStage::OutputShape(int micro_batch) const {
  return ShapeAfter(config_.layers.end - 1, micro_batch);
}

}  // namespace rankwise
