#include "trainers/models/transformer.h"

#include <ATen/ops/dropout.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/modules/normalization.h>

#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "third_party/absl/status_macros.h"
#include "trainers/models/catalog.h"

namespace rankwise {
namespace {

torch::Tensor Normal(at::IntArrayRef shape, double deviation) {
  return at::empty(shape).normal_(0, deviation);
}

torch::nn::LayerNorm Norm(int64_t features) {
  return torch::nn::LayerNorm(torch::nn::LayerNormOptions({features}));
}

class Attention : public torch::nn::Module {
 public:
  explicit Attention(const BlockConfig& config)
      : config_(config),
        qkv_(register_module("qkv", std::make_shared<Linear>(
                                        config.features, 3 * config.features))),
        projection_(register_module(
            "projection",
            std::make_shared<Linear>(config.features, config.features,
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
  std::shared_ptr<Linear> qkv_, projection_;
};

class Mlp : public torch::nn::Module {
 public:
  explicit Mlp(const BlockConfig& config)
      : dropout_(config.dropout),
        expand_(register_module(
            "expand",
            std::make_shared<Linear>(config.features, 4 * config.features))),
        contract_(register_module(
            "contract",
            std::make_shared<Linear>(4 * config.features, config.features,
                                     config.residual_deviation))) {}

  torch::Tensor Forward(const torch::Tensor& x) const {
    const torch::Tensor hidden = at::gelu(expand_->Forward(x), "tanh");
    return at::dropout(contract_->Forward(hidden), dropout_, is_training());
  }

 private:
  const double dropout_;
  std::shared_ptr<Linear> expand_, contract_;
};

class Block : public torch::nn::Module {
 public:
  explicit Block(const BlockConfig& config)
      : norm1_(register_module("norm1", Norm(config.features))),
        attention_(
            register_module("attention", std::make_shared<Attention>(config))),
        norm2_(register_module("norm2", Norm(config.features))),
        mlp_(register_module("mlp", std::make_shared<Mlp>(config))) {}

  torch::Tensor Forward(const torch::Tensor& input) {
    const torch::Tensor x = input + attention_->Forward(norm1_->forward(input));
    return x + mlp_->Forward(norm2_->forward(x));
  }

 private:
  torch::nn::LayerNorm norm1_;
  std::shared_ptr<Attention> attention_;
  torch::nn::LayerNorm norm2_;
  std::shared_ptr<Mlp> mlp_;
};

absl::StatusOr<TransformerSize> Named(const ModelConfig& config,
                                      absl::Span<const TransformerSize> sizes) {
  if (config.size.empty()) return sizes.front();
  std::vector<std::string> names;
  for (const TransformerSize& size : sizes) {
    if (size.name == config.size) return size;
    names.push_back(size.name);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--model_size=", config.size, ": --model=", config.name,
                   " has no such size; it has ", absl::StrJoin(names, ", ")));
}

absl::Status CheckFlags(const ModelConfig& config) {
  RETURN_IF_ERROR(CheckSizeFlag("depth", config.depth, kMostBlocks));
  RETURN_IF_ERROR(CheckSizeFlag("width", config.width, kMostFeatures));
  RETURN_IF_ERROR(
      CheckSizeFlag("sequence_length", config.sequence_length, kMostFeatures));
  if (config.dropout >= 0 && config.dropout < 1) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--dropout=", config.dropout, ": must be at least 0 and less than 1"));
}

}  // namespace

absl::StatusOr<TransformerSize> ChooseSize(
    const ModelConfig& config, absl::Span<const TransformerSize> sizes) {
  RETURN_IF_ERROR(CheckFlags(config));
  ASSIGN_OR_RETURN(TransformerSize size, Named(config, sizes));
  if (config.depth > 0) size.depth = config.depth;
  if (config.sequence_length > 0) size.sequence_length = config.sequence_length;
  if (config.width > 0) {
    const int64_t head_width = size.width / size.heads;
    if (config.width % head_width != 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--width=", config.width, ": must be a multiple of ", head_width,
          ", the width of an attention head of --model_size=", size.name));
    }
    size.width = config.width;
    size.heads = config.width / head_width;
  }
  return size;
}

Linear::Linear(int64_t inputs, int64_t outputs, double deviation)
    : weight_(
          register_parameter("weight", Normal({outputs, inputs}, deviation))),
      bias_(register_parameter("bias", at::zeros({outputs}))) {}

torch::Tensor Linear::Forward(const torch::Tensor& x) const {
  return at::linear(x, weight_, bias_);
}

Embedding::Embedding(int64_t rows, int64_t features)
    : weight_(register_parameter(
          "weight", Normal({rows, features}, kInitialDeviation))) {}

LayerSpec BlockLayer(const std::string& name, const BlockConfig& config) {
  const int64_t features = config.features;
  // Of attention, 4 f^2; of the MLP, 8 f^2.
  const int64_t weights = 12 * features * features;
  return {.name = name,
          .output_shape = {config.tokens, features},
          // The biases of qkv, the two projections and expand; two norms.
          .parameters = weights + (3 + 1 + 1 + 4) * features + 4 * features,
          .flops = 2.0 * static_cast<double>(config.tokens) *
                   static_cast<double>(weights + 2 * config.tokens * features),
          .has_dropout = config.dropout > 0,
          .build = [config](LayerContext&) {
            return MakeLayer(std::make_shared<Block>(config));
          }};
}

LayerSpec NormLayer(const std::string& name, std::vector<int64_t> shape) {
  const int64_t features = shape.back();
  return {.name = name,
          .output_shape = std::move(shape),
          .parameters = 2 * features,
          .build = [features](LayerContext&) {
            torch::nn::LayerNorm norm = Norm(features);
            return Layer{norm.ptr(), [norm](const torch::Tensor& x) mutable {
                           return norm->forward(x);
                         }};
          }};
}

}  // namespace rankwise
