#include "trainers/simple_cnn.h"

#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/relu.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <memory>

namespace rankwise {
namespace {

class SimpleCnn : public Model {
 public:
  SimpleCnn() {
    conv1_ = register_module(
        "conv1",
        torch::nn::Conv2d(
            torch::nn::Conv2dOptions(3, 32, /*kernel_size=*/3).padding(1)));
    conv2_ = register_module(
        "conv2",
        torch::nn::Conv2d(
            torch::nn::Conv2dOptions(32, 64, /*kernel_size=*/3).padding(1)));
    fc1_ = register_module("fc1", torch::nn::Linear(64 * 8 * 8, 512));
    fc2_ = register_module("fc2", torch::nn::Linear(512, 10));
  }

  torch::Tensor Forward(const torch::Tensor& input) override {
    torch::Tensor x =
        at::max_pool2d(conv1_(input).relu_(), 2);  // [B, 32, 16, 16]
    x = at::max_pool2d(conv2_(x).relu_(), 2);      // [B, 64, 8, 8]
    x = fc1_(x.flatten(1)).relu_();                // [B, 512]
    return fc2_(x);
  }

 private:
  torch::nn::Conv2d conv1_{nullptr};
  torch::nn::Conv2d conv2_{nullptr};
  torch::nn::Linear fc1_{nullptr};
  torch::nn::Linear fc2_{nullptr};
};

}  // namespace

ModelSpec SimpleCnnSpec() {
  return {.name = "simple_cnn",
          .loss = LossKind::kCrossEntropy,
          .example_shape = {3, 32, 32},
          .default_dataset = "synthetic",
          .default_optimizer = "adam",
          .default_learning_rate = 1e-3,
          .build = [] { return std::make_shared<SimpleCnn>(); }};
}

}  // namespace rankwise
