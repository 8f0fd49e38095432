#include "trainers/models/simple_cnn.h"

#include <ATen/ops/max_pool2d.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>

#include <functional>
#include <memory>
#include <string>
#include <tuple>

#include "trainers/models/layers.h"

namespace rankwise {
namespace {

constexpr int64_t kKernel = 3;

// The same with a BatchNorm2d before the ReLU, in a Sequential, in which it can
// be replaced.
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

}  // namespace rankwise
