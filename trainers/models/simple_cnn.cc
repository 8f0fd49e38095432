#include "trainers/models/simple_cnn.h"

#include <ATen/ops/max_pool2d.h>
#include <torch/nn/modules/conv.h>

#include <memory>
#include <string>

#include "trainers/models/layers.h"

namespace rankwise {
namespace {

constexpr int64_t kKernel = 3;

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

ModelSpec SimpleCnnSpec() {
  ModelSpec spec;
  spec.name = "simple_cnn";
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
  return spec;
}

}  // namespace rankwise
