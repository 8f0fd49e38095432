#include "trainers/models/transformer.h"

#include <ATen/ops/dropout.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/zeros.h>

#include <memory>
#include <utility>

namespace rankwise {
namespace {

torch::Tensor Normal(at::IntArrayRef shape, double deviation) {
  return at::empty(shape).normal_(0, deviation);
}

class Attention : public torch::nn::Module {
 public:
  explicit Attention(const BlockConfig& config)
      : config_(config),
        qkv_(register_module("qkv", std::make_shared<Affine>(
                                        config.features, 3 * config.features))),
        projection_(register_module(
            "projection",
            std::make_shared<Affine>(config.features, config.features,
                                     config.residual_deviation))) {}

  torch::Tensor Forward(const torch::Tensor& x) const {
    // [3, B, heads, tokens, features / heads]
    const torch::Tensor qkv =
        qkv_->Forward(x)
            .view({x.size(0), x.size(1), 3, config_.heads, -1})
            .permute({2, 0, 3, 1, 4});
    const torch::Tensor mixed = at::scaled_dot_product_attention(
        qkv[0], qkv[1], qkv[2], /*attn_mask=*/{},
        is_training() ? config_.dropout : 0.0, config_.causal);
    const torch::Tensor joined = mixed.transpose(1, 2).flatten(2);
    return at::dropout(projection_->Forward(joined), config_.dropout,
                       is_training());
  }

 private:
  const BlockConfig config_;
  std::shared_ptr<Affine> qkv_, projection_;
};

class Mlp : public torch::nn::Module {
 public:
  explicit Mlp(const BlockConfig& config)
      : dropout_(config.dropout),
        expand_(register_module(
            "expand",
            std::make_shared<Affine>(config.features, 4 * config.features))),
        contract_(register_module(
            "contract",
            std::make_shared<Affine>(4 * config.features, config.features,
                                     config.residual_deviation))) {}

  torch::Tensor Forward(const torch::Tensor& x) const {
    const torch::Tensor hidden = at::gelu(expand_->Forward(x), "tanh");
    return at::dropout(contract_->Forward(hidden), dropout_, is_training());
  }

 private:
  const double dropout_;
  std::shared_ptr<Affine> expand_, contract_;
};

class Block : public torch::nn::Module {
 public:
  explicit Block(const BlockConfig& config)
      : norm1_(
            register_module("norm1", std::make_shared<Norm>(config.features))),
        attention_(
            register_module("attention", std::make_shared<Attention>(config))),
        norm2_(
            register_module("norm2", std::make_shared<Norm>(config.features))),
        mlp_(register_module("mlp", std::make_shared<Mlp>(config))) {}

  torch::Tensor Forward(const torch::Tensor& input) const {
    const torch::Tensor x = input + attention_->Forward(norm1_->Forward(input));
    return x + mlp_->Forward(norm2_->Forward(x));
  }

 private:
  std::shared_ptr<Norm> norm1_;
  std::shared_ptr<Attention> attention_;
  std::shared_ptr<Norm> norm2_;
  std::shared_ptr<Mlp> mlp_;
};

}  // namespace

Affine::Affine(int64_t inputs, int64_t outputs, double deviation)
    : weight_(
          register_parameter("weight", Normal({outputs, inputs}, deviation))),
      bias_(register_parameter("bias", at::zeros({outputs}))) {}

torch::Tensor Affine::Forward(const torch::Tensor& x) const {
  return at::linear(x, weight_, bias_);
}

Norm::Norm(int64_t features)
    : weight_(register_parameter("weight", at::ones({features}))),
      bias_(register_parameter("bias", at::zeros({features}))) {}

torch::Tensor Norm::Forward(const torch::Tensor& x) const {
  return at::layer_norm(x, weight_.sizes(), weight_, bias_);
}

Embedding::Embedding(int64_t rows, int64_t features)
    : weight_(register_parameter(
          "weight", Normal({rows, features}, kInitialDeviation))) {}

LayerSpec BlockLayer(const std::string& name, const BlockConfig& config) {
  const int64_t features = config.features;
  // Of attention, 4 f^2; of the MLP, 8 f^2.
  const int64_t weights = 12 * features * features;
  LayerSpec spec;
  spec.name = name;
  spec.output_shape = {config.tokens, features};
  // The biases of qkv, the two projections and expand; two norms.
  spec.parameters = weights + (3 + 1 + 1 + 4) * features + 4 * features;
  spec.flops = 2.0 * static_cast<double>(config.tokens) *
               static_cast<double>(weights + 2 * config.tokens * features);
  spec.has_dropout = config.dropout > 0;
  spec.build = [config](LayerContext&) {
    auto block = std::make_shared<Block>(config);
    return Layer{block,
                 [block](const torch::Tensor& x) { return block->Forward(x); }};
  };
  return spec;
}

LayerSpec NormLayer(const std::string& name, std::vector<int64_t> shape) {
  const int64_t features = shape.back();
  LayerSpec spec;
  spec.name = name;
  spec.output_shape = std::move(shape);
  spec.parameters = 2 * features;
  spec.build = [features](LayerContext&) {
    auto norm = std::make_shared<Norm>(features);
    return Layer{norm,
                 [norm](const torch::Tensor& x) { return norm->Forward(x); }};
  };
  return spec;
}

}  // namespace rankwise
