// The models that are no transformers. FLOPs count matrix products and
// convolutions, as is usual; biases, activations and norms are left out.
#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/relu.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <functional>
#include <memory>
#include <string>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "third_party/absl/status_macros.h"
#include "trainers/models/catalog.h"

namespace rankwise {
namespace {

constexpr int64_t kPixels = 3 * 32 * 32;
constexpr int64_t kClasses = 10;
constexpr int64_t kDefaultDepth = 2;
constexpr int64_t kDefaultWidth = 512;
constexpr int64_t kKernel = 3;

struct DenseConfig {
  int64_t inputs = 0, outputs = 0;
  bool flatten = false;  // the input of every example first
  bool relu = false;     // of the output
};

// torch.nn.Linear. [B, inputs] (with `flatten`: that many values in any shape)
// to [B, outputs].
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

// [B, features] to the same; no parameters.
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

// As ConvLayer builds with a BatchNorm2d before the ReLU, in a Sequential, in
// which it can be replaced.
std::function<Layer(LayerContext&)> NormedConv(int64_t in, int64_t out) {
  return [in, out](LayerContext&) {
    torch::nn::Sequential block;
    block->push_back(
        "conv", torch::nn::Conv2d(
                    torch::nn::Conv2dOptions(in, out, kKernel).padding(1)));
    block->push_back("norm", torch::nn::BatchNorm2d(out));
    return Layer{block.ptr(), [block](const torch::Tensor& input) mutable {
                   return at::max_pool2d(block->forward(input).relu_(), 2);
                 }};
  };
}

// 3x3 convolution, ReLU and 2x2 max pooling: [B, in, side, side] to
// [B, out, side / 2, side / 2].
LayerSpec ConvLayer(const std::string& name, int64_t in, int64_t out,
                    int64_t side) {
  LayerSpec spec;
  spec.name = name;
  spec.output_shape = {out, side / 2, side / 2};
  spec.parameters = (in * kKernel * kKernel + 1) * out;
  spec.flops =
      2.0 * static_cast<double>(in * kKernel * kKernel * out * side * side);
  spec.build = [in, out](LayerContext&) {
    auto conv = std::make_shared<torch::nn::Conv2dImpl>(
        torch::nn::Conv2dOptions(in, out, kKernel).padding(1));
    return Layer{conv, [conv](const torch::Tensor& input) {
                   return at::max_pool2d(conv->forward(input).relu_(), 2);
                 }};
  };
  return spec;
}

}  // namespace

ModelSpec LinearSpec() {
  ModelSpec spec;
  spec.name = "linear";
  spec.loss = LossKind::kMeanSquaredError;
  spec.example_shape = {10};
  spec.default_dataset = "linear";
  spec.default_optimizer = "sgd";
  spec.default_learning_rate = 0.01;
  spec.layers = {DenseLayer("fc", {.inputs = 10, .outputs = 1})};
  return spec;
}

ModelSpec SimpleCnnSpec(bool batch_norm) {
  ModelSpec spec;
  spec.name = batch_norm ? "simple_cnn_bn" : "simple_cnn";
  spec.example_shape = {3, 32, 32};
  spec.num_classes = 10;
  spec.default_dataset = "synthetic";
  spec.default_optimizer = "adam";
  spec.default_learning_rate = 1e-3;
  spec.layers = {ConvLayer("conv1", 3, 32, 32), ConvLayer("conv2", 32, 64, 16),
                 DenseLayer("fc1", {.inputs = 64 * 8 * 8,
                                    .outputs = 512,
                                    .flatten = true,
                                    .relu = true}),
                 DenseLayer("fc2", {.inputs = 512, .outputs = 10})};
  if (!batch_norm) return spec;
  for (const auto& [index, in, out] : {std::tuple{0, 3, 32}, {1, 32, 64}}) {
    spec.layers[index].build = NormedConv(in, out);
    spec.layers[index].parameters += 2 * out;
  }
  return spec;
}

absl::StatusOr<ModelSpec> MlpSpec(const ModelConfig& config) {
  RETURN_IF_ERROR(CheckSizeFlag("depth", config.depth, kMostBlocks));
  RETURN_IF_ERROR(CheckSizeFlag("width", config.width, kMostFeatures));
  const int64_t depth = config.depth > 0 ? config.depth : kDefaultDepth;
  const int64_t width = config.width > 0 ? config.width : kDefaultWidth;
  ModelSpec spec;
  spec.name = config.name;
  spec.example_shape = {3, 32, 32};
  spec.num_classes = kClasses;
  spec.default_dataset = "synthetic";
  spec.default_optimizer = "adam";
  spec.default_learning_rate = 1e-3;
  for (int64_t i = 0; i <= depth; ++i) {
    DenseConfig layer;
    layer.inputs = i == 0 ? kPixels : width;
    layer.outputs = i == depth ? kClasses : width;
    layer.flatten = i == 0;
    layer.relu = i < depth;
    spec.layers.push_back(DenseLayer(absl::StrCat("fc", i + 1), layer));
  }
  return spec;
}

ModelSpec MpMlpSpec() {
  ModelSpec spec;
  spec.name = "mp_mlp";
  spec.loss = LossKind::kMeanSquaredError;
  spec.example_shape = {1024};
  spec.default_dataset = "regression";
  spec.default_optimizer = "adam";
  spec.default_learning_rate = 1e-3;
  spec.layers = {DenseLayer("fc1", {.inputs = 1024, .outputs = 2048}),
                 ReluLayer("relu", 2048),
                 DenseLayer("fc2", {.inputs = 2048, .outputs = 1024})};
  return spec;
}

}  // namespace rankwise
