#include "trainers/models/model.h"

#include <ATen/Context.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/mse_loss.h>
#include <c10/util/Exception.h>
#include <torch/nn/modules/batchnorm.h>

#include <mutex>

#include "absl/algorithm/container.h"
#include "samplers/datasets/split_mix.h"

namespace rankwise {
namespace {

bool Keeps(absl::Span<const LayerRange> kept, size_t layer) {
  return absl::c_any_of(
      kept, [&](const LayerRange& range) { return range.contains(layer); });
}

// Seeds the device's default generator. Nobody restores what it was before.
void SeedGenerator(c10::Device device, uint64_t seed) {
  at::Generator generator = at::globalContext().defaultGenerator(device);
  std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_current_seed(seed);
}

}  // namespace

uint64_t LayerSeed(uint64_t seed, uint64_t layer) {
  return MixIn(MixIn(seed, 0), layer);
}

int64_t ModelSpec::parameters() const {
  int64_t sum = 0;
  for (const LayerSpec& layer : layers) sum += layer.parameters;
  return sum;
}

double ModelSpec::flops() const {
  double sum = 0;
  for (const LayerSpec& layer : layers) sum += layer.flops;
  return sum;
}

Model::Model(const ModelSpec& spec) : Model(spec, {{0, spec.layers.size()}}) {}

Model::Model(const ModelSpec& spec, absl::Span<const LayerRange> kept) {
  LayerContext context;
  for (const TiedWeight& tie : spec.ties) {
    context.owner_kept[tie.name] = Keeps(kept, tie.owner);
    if (Keeps(kept, tie.user) && !Keeps(kept, tie.owner))
      copies_.push_back(tie);
  }
  for (const LayerSpec& layer_spec : spec.layers) {
    Layer layer = layer_spec.build(context);
    has_dropout_.push_back(layer_spec.has_dropout);
    const bool keeps = Keeps(kept, layers_.size());
    layers_.push_back(keeps ? layer : Layer());
    if (keeps && layer.module != nullptr)
      register_module(layer_spec.name, layer.module);
  }
}

torch::Tensor Model::Forward(const torch::Tensor& input) {
  return Forward(input, {0, layers_.size()});
}

torch::Tensor Model::Forward(const torch::Tensor& input, LayerRange range) {
  torch::Tensor x = input;
  for (size_t i = range.begin; i < range.end; ++i) {
    TORCH_CHECK(i < layers_.size() && layers_[i].forward,
                "this model does not hold layer ", i);
    if (has_dropout_[i] && is_training())
      SeedGenerator(x.device(), LayerSeed(dropout_seed_, i));
    x = layers_[i].forward(x);
  }
  return x;
}

torch::Tensor Loss(LossKind kind, const torch::Tensor& output,
                   const torch::Tensor& target) {
  if (kind == LossKind::kMeanSquaredError) return at::mse_loss(output, target);
  if (output.dim() <= 2) return at::cross_entropy_loss(output, target);
  return at::cross_entropy_loss(output.flatten(0, -2), target.flatten());
}

void ToChannelsLast(torch::nn::Module& model) {
  for (torch::Tensor& parameter : model.parameters()) {
    if (parameter.dim() != 4) continue;
    parameter.set_data(parameter.contiguous(at::MemoryFormat::ChannelsLast));
  }
}

bool HasBatchNorm(const torch::nn::Module& model) {
  return absl::c_any_of(model.modules(), [](const auto& module) {
    return module->template as<torch::nn::BatchNorm1d>() ||
           module->template as<torch::nn::BatchNorm2d>() ||
           module->template as<torch::nn::BatchNorm3d>();
  });
}

}  // namespace rankwise
