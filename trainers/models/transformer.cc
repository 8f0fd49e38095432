#include "trainers/models/transformer.h"

#include <ATen/ops/dropout.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/modules/normalization.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "parallel/tensor/linear.h"
#include "third_party/absl/status_macros.h"
#include "trainers/layers/attention.h"
#include "trainers/layers/gelu.h"
#include "trainers/models/catalog.h"

namespace rankwise {
namespace {

torch::Tensor Normal(at::IntArrayRef shape, double deviation) {
  return at::empty(shape).normal_(0, deviation);
}

// Returns a norm of the tokens between layers.
torch::nn::LayerNorm Norm(int64_t features, LayerContext& context) {
  torch::nn::LayerNorm norm(torch::nn::LayerNormOptions({features}));
  if (context.parallel.tensor.sequence_parallel) {
    context.partial_gradient_parameters.push_back(norm->weight);
    context.partial_gradient_parameters.push_back(norm->bias);
  }
  return norm;
}

LinearOptions WritesToResidual(const BlockConfig& config) {
  return {.deviation = config.residual_deviation};
}

class Attention : public torch::nn::Module {
 public:
  Attention(const BlockConfig& config, LayerContext& context)
      : config_(config),
        parallel_(context.parallel),
        qkv_(register_module("qkv", std::make_shared<Linear>(
                                        config.features, 3 * config.features))),
        projection_(register_module(
            "projection",
            std::make_shared<Linear>(config.features, config.features,
                                     WritesToResidual(config)))) {
    DivideColumns(*qkv_, std::vector<int64_t>(3, config.features), context);
    DivideRows(*projection_, context);
  }

  torch::Tensor Forward(const torch::Tensor& x) const {
    // [B, tokens, 3 * features], for this rank's heads
    const torch::Tensor rows = ColumnParallelLinear(
        x, qkv_->weight(), qkv_->bias(),
        TokensHere(config_.sequence, config_.split), parallel_.tensor);
    return at::dropout(RowParallelLinear(Mix(rows), projection_->weight(),
                                         projection_->bias(), parallel_.tensor),
                       config_.dropout, is_training());
  }

 private:
  // Returns [B, tokens, features], for this rank's heads.
  torch::Tensor Mix(const torch::Tensor& rows) const {
    const int64_t heads = config_.heads / parallel_.tensor.size();
    const double dropout = is_training() ? config_.dropout : 0.0;
    if (dropout == 0 && parallel_.context.size() == 1 &&
        HasSelfAttention(rows, heads, heads)) {
      return SelfAttention(rows, heads, heads, config_.sequence.causal);
    }
    // [3, B, heads, tokens, features / heads]
    const torch::Tensor qkv =
        rows.view({rows.size(0), rows.size(1), 3, heads, -1})
            .permute({2, 0, 3, 1, 4});
    return Mix(qkv[0], qkv[1], qkv[2], dropout).transpose(1, 2).flatten(2);
  }

  torch::Tensor Mix(const torch::Tensor& q, const torch::Tensor& k,
                    const torch::Tensor& v, double dropout) const {
    std::optional<ForkedGenerator> heads_own;
    if (dropout > 0) {
      heads_own.emplace(q.device(),
                        static_cast<uint64_t>(parallel_.tensor.place()));
    }
    return ContextAttention(q, k, v, config_.sequence, dropout,
                            parallel_.context);
  }

  const BlockConfig config_;
  const ModelParallel parallel_;
  std::shared_ptr<Linear> qkv_, projection_;
};

class Mlp : public torch::nn::Module {
 public:
  Mlp(const BlockConfig& config, LayerContext& context)
      : config_(config),
        tensor_(context.parallel.tensor),
        expand_(register_module(
            "expand",
            std::make_shared<Linear>(config.features, 4 * config.features))),
        contract_(register_module(
            "contract",
            std::make_shared<Linear>(4 * config.features, config.features,
                                     WritesToResidual(config)))) {
    DivideColumns(*expand_, {4 * config.features}, context);
    DivideRows(*contract_, context);
  }

  torch::Tensor Forward(const torch::Tensor& x) const {
    const torch::Tensor hidden = TanhGelu(ColumnParallelLinear(
        x, expand_->weight(), expand_->bias(),
        TokensHere(config_.sequence, config_.split), tensor_));
    return at::dropout(RowParallelLinear(hidden, contract_->weight(),
                                         contract_->bias(), tensor_),
                       config_.dropout, is_training());
  }

 private:
  const BlockConfig config_;
  const TensorParallel tensor_;
  std::shared_ptr<Linear> expand_, contract_;
};

class Block : public torch::nn::Module {
 public:
  Block(const BlockConfig& config, LayerContext& context)
      : norm1_(register_module("norm1", Norm(config.features, context))),
        attention_(register_module(
            "attention", std::make_shared<Attention>(config, context))),
        norm2_(register_module("norm2", Norm(config.features, context))),
        mlp_(register_module("mlp", std::make_shared<Mlp>(config, context))) {}

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

}  // namespace

absl::Status CheckTransformerFlags(const ModelConfig& config) {
  RETURN_IF_ERROR(CheckSizeFlag("depth", config.depth, kMostBlocks));
  RETURN_IF_ERROR(CheckSizeFlag("width", config.width, kMostFeatures));
  RETURN_IF_ERROR(
      CheckSizeFlag("vocabulary", config.vocabulary, kMostFeatures));
  RETURN_IF_ERROR(
      CheckSizeFlag("sequence_length", config.sequence_length, kMostFeatures));
  if (config.dropout >= 0 && config.dropout < 1) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--dropout=", config.dropout, ": must be at least 0 and less than 1"));
}

absl::StatusOr<TransformerSize> ChooseSize(
    const ModelConfig& config, absl::Span<const TransformerSize> sizes) {
  RETURN_IF_ERROR(CheckTransformerFlags(config));
  ASSIGN_OR_RETURN(TransformerSize size, SizeNamedBy(config, sizes));
  if (config.depth > 0) size.depth = config.depth;
  if (config.vocabulary > 0) size.vocabulary = config.vocabulary;
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

double ResidualDeviation(int64_t depth) {
  return kInitialDeviation / std::sqrt(2.0 * static_cast<double>(depth));
}

Linear::Linear(int64_t inputs, int64_t outputs, const LinearOptions& options)
    : weight_(register_parameter(
          "weight", Normal({outputs, inputs}, options.deviation))) {
  if (options.bias) bias_ = register_parameter("bias", at::zeros({outputs}));
}

torch::Tensor Linear::Forward(const torch::Tensor& x) const {
  return at::linear(x, weight_, bias_);
}

void DivideColumns(const Linear& linear, std::vector<int64_t> blocks,
                   LayerContext& context) {
  const Division division{.dim = 0, .blocks = std::move(blocks)};
  context.Divide(linear.weight(), division);
  if (linear.bias().defined()) context.Divide(linear.bias(), division);
}

void DivideRows(const Linear& linear, LayerContext& context) {
  context.Divide(linear.weight(),
                 {.dim = 1, .blocks = {linear.weight().size(1)}});
  if (linear.bias().defined() && context.parallel.tensor.sequence_parallel)
    context.partial_gradient_parameters.push_back(linear.bias());
}

Embedding::Embedding(int64_t rows, int64_t features)
    : weight_(register_parameter(
          "weight", Normal({rows, features}, kInitialDeviation))) {}

int64_t KvHeadsHere(const BlockConfig& config) {
  return std::max<int64_t>(config.kv_heads / config.split.tensor, 1);
}

absl::Status CheckSplit(const BlockConfig& config) {
  const ModelSplit& split = config.split;
  RETURN_IF_ERROR(CheckDivides("attention heads", config.heads, split.tensor));
  if (split.sequence && split.tensor == 1) {
    return absl::InvalidArgumentError(
        "--sequence_parallel: divides the tokens among the ranks along tp, "
        "which must be at least 2");
  }
  if (split.context == 1) return absl::OkStatus();
  if (config.dropout > 0 && split.method == ContextMethod::kRing) {
    return absl::InvalidArgumentError(
        absl::StrCat("--dropout=", config.dropout,
                     ": ring attention cannot drop attention weights; give "
                     "--context=ulysses or --dropout=0"));
  }
  return CheckContextParallel(config.sequence, config.heads / split.tensor,
                              KvHeadsHere(config), split.method, split.context);
}

double ExchangesOfTokens(int times, const BlockConfig& config) {
  if (config.split.tensor == 1) return 0;
  return static_cast<double>(times * TokensHere(config.sequence, config.split) *
                             config.features);
}

TransformerPart TransformerPartOf(const BlockConfig& config) {
  const ModelSplit& split = config.split;
  return {
      .features = config.features,
      .heads = config.heads,
      .tensor = split.tensor,
      .tokens = config.sequence.tokens,
      .tokens_here = TokensHere(config.sequence, split),
      .tokens_between = TokensBetweenLayers(config.sequence, split),
      .dropout = config.dropout > 0,
      .copies_attention =
          split.context > 1 && split.method == ContextMethod::kUlysses,
  };
}

LayerSpec BlockLayer(const std::string& name, const BlockConfig& config) {
  const int64_t features = config.features, tokens = config.sequence.tokens;
  const TransformerPart part = TransformerPartOf(config);
  LayerMemory memory = BlockMemory(part);
  // 4 f^2 for attention, 8 f^2 for the MLP.
  const int64_t weights = 12 * features * features;
  return {.name = name,
          .output_shape = {tokens, features},
          .part_shape = {part.tokens_between, features},
          // The biases of qkv, the two projections and expand; two norms.
          .parameters = weights + (3 + 1 + 1 + 4) * features + 4 * features,
          .part_parameters = std::move(memory.parameters),
          .kept = memory.kept,
          // Attention and the MLP, once each in forward and backward.
          .exchanged_along_tp = ExchangesOfTokens(4, config),
          .flops = 2.0 * static_cast<double>(tokens) *
                   static_cast<double>(weights + 2 * tokens * features),
          .has_dropout = config.dropout > 0,
          .build = [config](LayerContext& context) {
            return MakeLayer(std::make_shared<Block>(config, context));
          }};
}

LayerSpec NormLayer(const std::string& name, const BlockConfig& config) {
  const int64_t features = config.features;
  const TransformerPart part = TransformerPartOf(config);
  LayerMemory memory = NormMemory(part);
  return {.name = name,
          .output_shape = {config.sequence.tokens, features},
          .part_shape = {part.tokens_between, features},
          .parameters = 2 * features,
          .part_parameters = std::move(memory.parameters),
          .kept = memory.kept,
          .build = [features](LayerContext& context) {
            torch::nn::LayerNorm norm = Norm(features, context);
            return Layer{norm.ptr(), [norm](const torch::Tensor& x) mutable {
                           return norm->forward(x);
                         }};
          }};
}

}  // namespace rankwise
