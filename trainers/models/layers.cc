#include "trainers/models/layers.h"

#include <ATen/ops/relu.h>
#include <torch/nn/modules/linear.h>

#include <memory>

namespace rankwise {

LayerSpec DenseLayer(const std::string& name, const DenseConfig& config) {
  LayerSpec spec;
  spec.name = name;
  spec.output_shape = {config.outputs};
  spec.parameters = (config.inputs + 1) * config.outputs;
  spec.flops = 2.0 * static_cast<double>(config.inputs * config.outputs);
  spec.build = [config](LayerContext&) {
    auto linear =
        std::make_shared<torch::nn::LinearImpl>(config.inputs, config.outputs);
    return Layer{linear, [linear, config](const torch::Tensor& input) {
                   torch::Tensor x = linear->forward(
                       config.flatten ? input.flatten(1) : input);
                   return config.relu ? x.relu_() : x;
                 }};
  };
  return spec;
}

LayerSpec ReluLayer(const std::string& name, int64_t features) {
  LayerSpec spec;
  spec.name = name;
  spec.output_shape = {features};
  spec.build = [](LayerContext&) {
    return Layer{nullptr,
                 [](const torch::Tensor& input) { return at::relu(input); }};
  };
  return spec;
}

}  // namespace rankwise
