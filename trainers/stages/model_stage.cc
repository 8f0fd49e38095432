#include "trainers/stages/model_stage.h"

#include <ATen/ops/zeros.h>

#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "trainers/loop/evaluate.h"
#include "trainers/loop/objective.h"

namespace rankwise {
namespace {

// Of the layers of `range` itself, not of those that they are tied to.
bool BelongsTo(const ModelSpec& spec, const LayerRange& range,
               const std::string& name) {
  for (size_t layer = range.begin; layer < range.end; ++layer) {
    if (absl::StartsWith(name, absl::StrCat(spec.layers[layer].name, ".")))
      return true;
  }
  return false;
}

std::vector<torch::Tensor> BuffersOf(const Model& model, const ModelSpec& spec,
                                     const LayerRange& range) {
  std::vector<torch::Tensor> buffers;
  for (const auto& entry : model.named_buffers()) {
    if (BelongsTo(spec, range, entry.key())) buffers.push_back(entry.value());
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
  const EvaluationMode evaluation_mode(model);
  const AutocastScope autocast(config.precision, config.device.type());
  return model.Forward(input.to(config.device), config.layers);
}

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
