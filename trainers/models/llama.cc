#include "trainers/models/llama.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/ones.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "parallel/tensor/linear.h"
#include "third_party/absl/status_macros.h"
#include "trainers/layers/attention.h"
#include "trainers/layers/rms_norm.h"
#include "trainers/layers/rotary.h"
#include "trainers/layers/swiglu.h"
#include "trainers/models/catalog.h"
#include "trainers/models/transformer.h"
#include "trainers/models/vocabulary.h"

namespace rankwise {
namespace {

// The angles of this rank's tokens, computed once per device and shared by all
// blocks and replicas. Thread-safe.
class Rotations {
 public:
  Rotations(const LlamaSize& size, const BlockConfig& block)
      : size_(size), block_(block) {}

  const RotaryAngles& On(c10::Device device) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto [entry, is_new] = by_device_.try_emplace(device.str());
    if (is_new) entry->second = Make(device);
    return entry->second;
  }

 private:
  RotaryAngles Make(c10::Device device) const {
    const RotaryAngles angles =
        RotaryTable(ContextPositions(block_.sequence, block_.split.context,
                                     block_.split.context_place),
                    size_.head_width, size_.rope_theta, size_.rope_scaling);
    return {angles.cos.to(device), angles.sin.to(device)};
  }

  const LlamaSize size_;
  const BlockConfig block_;
  std::mutex mutex_;
  std::map<std::string, RotaryAngles> by_device_;
};

struct LlamaConfig {
  LlamaSize size;
  BlockConfig block;
  std::shared_ptr<Rotations> rotations;
};

// One weight [features], initially 1.
class RootMeanSquareNorm : public torch::nn::Module {
 public:
  RootMeanSquareNorm(int64_t features, double epsilon)
      : epsilon_(epsilon),
        weight_(register_parameter("weight", at::ones({features}))) {}

  torch::Tensor Forward(const torch::Tensor& x) const {
    return RmsNorm(x, weight_, epsilon_);
  }
  const torch::Tensor& weight() const { return weight_; }

 private:
  const double epsilon_;
  torch::Tensor weight_;
};

// Returns a norm of the tokens between layers.
std::shared_ptr<RootMeanSquareNorm> TokenNorm(const LlamaConfig& config,
                                              LayerContext& context) {
  auto norm = std::make_shared<RootMeanSquareNorm>(config.size.width,
                                                   config.size.norm_epsilon);
  if (context.parallel.tensor.sequence_parallel)
    context.partial_gradient_parameters.push_back(norm->weight());
  return norm;
}

LinearOptions WithoutBias(double deviation = kInitialDeviation) {
  return {.deviation = deviation, .bias = false};
}

// Grouped-query attention (Ainslie et al. 2023) with rotary positions (Su et
// al. 2021).
class GroupedAttention : public torch::nn::Module {
 public:
  GroupedAttention(const LlamaConfig& config, LayerContext& context)
      : config_(config),
        parallel_(context.parallel),
        qkv_(register_module(
            "qkv",
            std::make_shared<Linear>(config.size.width, queries() + 2 * keys(),
                                     WithoutBias()))) {
    DivideColumns(*qkv_, {queries(), keys(), keys()}, context);
    if (config.size.qk_norm) {
      q_norm_ = HeadNorm("q_norm", context);
      k_norm_ = HeadNorm("k_norm", context);
    }
    projection_ = register_module(
        "projection",
        std::make_shared<Linear>(queries(), config.size.width,
                                 WithoutBias(config.block.residual_deviation)));
    DivideRows(*projection_, context);
  }

  torch::Tensor Forward(const torch::Tensor& x) const {
    const torch::Tensor rows = ColumnParallelLinear(
        x, qkv_->weight(), /*bias=*/{},
        TokensHere(config_.block.sequence, config_.block.split),
        parallel_.tensor);
    const auto& [cos, sin] = config_.rotations->On(x.device());
    const torch::Tensor rotated =
        Rotary(NormalizeHeads(WithOwnKeys(rows)), heads(), kv_heads(),
               cos.slice(0, 0, rows.size(1)), sin.slice(0, 0, rows.size(1)));
    return RowParallelLinear(Mix(rotated), projection_->weight(), /*bias=*/{},
                             parallel_.tensor);
  }

 private:
  // Features of all ranks' queries, and of their keys.
  int64_t queries() const {
    return config_.size.heads * config_.size.head_width;
  }
  int64_t keys() const {
    return config_.size.kv_heads * config_.size.head_width;
  }

  // Heads of this rank.
  int64_t heads() const { return config_.size.heads / parallel_.tensor.size(); }
  int64_t kv_heads() const { return KvHeadsHere(config_.block); }

  // Each rank normalises different heads with the same weight.
  std::shared_ptr<RootMeanSquareNorm> HeadNorm(const char* name,
                                               LayerContext& context) {
    auto norm = register_module(
        name, std::make_shared<RootMeanSquareNorm>(config_.size.head_width,
                                                   config_.size.norm_epsilon));
    context.partial_gradient_parameters.push_back(norm->weight());
    return norm;
  }

  // If there are more ranks along tp than key and value heads, each computes a
  // part of a head; this replaces it by the whole head that the rank's queries
  // use, from rows [B, tokens, queries, part of keys, part of values].
  torch::Tensor WithOwnKeys(const torch::Tensor& rows) const {
    const TensorParallel& tp = parallel_.tensor;
    if (tp.size() <= config_.size.kv_heads) return rows;
    const int64_t width = config_.size.head_width;
    const int64_t own_queries = heads() * width, part = keys() / tp.size();
    const int64_t head = tp.place() * config_.size.kv_heads / tp.size();
    // [B, tokens, ranks, 2, part]
    const torch::Tensor parts =
        ShareAmongRanks(rows.slice(2, own_queries), /*dim=*/2, 2 * keys(), tp)
            .unflatten(2, {tp.size(), 2, part});
    const auto own = [&](int64_t which) {
      return parts.select(3, which).flatten(2).narrow(2, head * width, width);
    };
    return at::cat({rows.slice(2, 0, own_queries), own(0), own(1)}, 2);
  }

  torch::Tensor NormalizeHeads(const torch::Tensor& rows) const {
    if (q_norm_ == nullptr) return rows;
    return QkNorm(rows, heads(), kv_heads(), q_norm_->weight(),
                  k_norm_->weight(), config_.size.norm_epsilon);
  }

  // [B, tokens, (heads + 2 * kv_heads) * head_width] to [B, tokens, heads *
  // head_width].
  torch::Tensor Mix(const torch::Tensor& rows) const {
    if (parallel_.context.size() == 1 &&
        HasSelfAttention(rows, heads(), kv_heads())) {
      return SelfAttention(rows, heads(), kv_heads(), /*causal=*/true);
    }
    // [B, heads, tokens, head_width]
    const std::vector<torch::Tensor> qkv =
        rows.unflatten(2, {-1, config_.size.head_width})
            .transpose(1, 2)
            .split_with_sizes({heads(), kv_heads(), kv_heads()}, 1);
    return ContextAttention(qkv[0], qkv[1], qkv[2], config_.block.sequence,
                            /*dropout=*/0, parallel_.context)
        .transpose(1, 2)
        .flatten(2);
  }

  const LlamaConfig config_;
  const ModelParallel parallel_;
  std::shared_ptr<Linear> qkv_, projection_;
  std::shared_ptr<RootMeanSquareNorm> q_norm_, k_norm_;
};

// SwiGLU (Shazeer 2020): contract(silu(gate(x)) * up(x)); `expand` has the rows
// of gate, then of up.
class GatedMlp : public torch::nn::Module {
 public:
  GatedMlp(const LlamaConfig& config, LayerContext& context)
      : config_(config),
        tensor_(context.parallel.tensor),
        expand_(register_module(
            "expand",
            std::make_shared<Linear>(
                config.size.width, 2 * config.size.ffn_width, WithoutBias()))),
        contract_(register_module(
            "contract", std::make_shared<Linear>(
                            config.size.ffn_width, config.size.width,
                            WithoutBias(config.block.residual_deviation)))) {
    DivideColumns(*expand_, {config.size.ffn_width, config.size.ffn_width},
                  context);
    DivideRows(*contract_, context);
  }

  torch::Tensor Forward(const torch::Tensor& x) const {
    const torch::Tensor hidden = SwiGlu(ColumnParallelLinear(
        x, expand_->weight(), /*bias=*/{},
        TokensHere(config_.block.sequence, config_.block.split), tensor_));
    return RowParallelLinear(hidden, contract_->weight(), /*bias=*/{}, tensor_);
  }

 private:
  const LlamaConfig config_;
  const TensorParallel tensor_;
  std::shared_ptr<Linear> expand_, contract_;
};

class LlamaBlock : public torch::nn::Module {
 public:
  LlamaBlock(const LlamaConfig& config, LayerContext& context)
      : norm1_(register_module("norm1", TokenNorm(config, context))),
        attention_(register_module(
            "attention", std::make_shared<GroupedAttention>(config, context))),
        norm2_(register_module("norm2", TokenNorm(config, context))),
        mlp_(register_module("mlp",
                             std::make_shared<GatedMlp>(config, context))) {}

  torch::Tensor Forward(const torch::Tensor& input) const {
    const torch::Tensor x = input + attention_->Forward(norm1_->Forward(input));
    return x + mlp_->Forward(norm2_->Forward(x));
  }

 private:
  std::shared_ptr<RootMeanSquareNorm> norm1_;
  std::shared_ptr<GroupedAttention> attention_;
  std::shared_ptr<RootMeanSquareNorm> norm2_;
  std::shared_ptr<GatedMlp> mlp_;
};

// Returns how many elements of keys and values an example exchanges along tp.
double ExchangedKeys(const LlamaConfig& config) {
  const BlockConfig& block = config.block;
  if (block.split.tensor <= block.kv_heads) return 0;
  return static_cast<double>(2 * 2 * TokensHere(block.sequence, block.split) *
                             block.kv_heads * config.size.head_width);
}

LayerSpec LlamaBlockLayer(const std::string& name, const LlamaConfig& config) {
  const LlamaSize& size = config.size;
  const TransformerPart part = TransformerPartOf(config.block);
  LayerMemory memory = LlamaBlockMemory({.transformer = part,
                                         .kv_heads = size.kv_heads,
                                         .head_width = size.head_width,
                                         .ffn_width = size.ffn_width,
                                         .qk_norm = size.qk_norm});
  const int64_t queries = size.heads * size.head_width;
  const int64_t keys = size.kv_heads * size.head_width;
  // qkv and projection; expand and contract.
  const int64_t weights =
      size.width * (2 * queries + 2 * keys) + size.width * 3 * size.ffn_width;
  return {.name = name,
          .output_shape = {part.tokens, size.width},
          .part_shape = {part.tokens_between, size.width},
          .parameters = weights + 2 * size.width +
                        (size.qk_norm ? 2 * size.head_width : 0),
          .part_parameters = std::move(memory.parameters),
          .kept = memory.kept,
          .exchanged_along_tp =
              ExchangesOfTokens(4, config.block) + ExchangedKeys(config),
          .flops = 2.0 * static_cast<double>(part.tokens) *
                   static_cast<double>(weights + 2 * part.tokens * queries),
          .build = [config](LayerContext& context) {
            return MakeLayer(std::make_shared<LlamaBlock>(config, context));
          }};
}

LayerSpec LastNormLayer(const LlamaConfig& config) {
  const TransformerPart part = TransformerPartOf(config.block);
  LayerMemory memory = RmsNormMemory(part);
  return {.name = "norm",
          .output_shape = {part.tokens, part.features},
          .part_shape = {part.tokens_between, part.features},
          .parameters = part.features,
          .part_parameters = std::move(memory.parameters),
          .kept = memory.kept,
          .build = [config](LayerContext& context) {
            return MakeLayer(TokenNorm(config, context));
          }};
}

absl::Status CheckTensorSplit(const LlamaSize& size, int ranks) {
  const int64_t most = std::max<int64_t>(size.kv_heads, ranks);
  const int64_t least = std::min<int64_t>(size.kv_heads, ranks);
  if (most % least != 0 || size.kv_heads * size.head_width % ranks != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "tp=", ranks, ": ", size.kv_heads, " key and value heads of ",
        size.head_width, " features neither divide among ", ranks,
        " ranks nor have a whole number of ranks each; give another tp or "
        "--kv_heads"));
  }
  return CheckDivides("features of the MLP (--ffn_width)", size.ffn_width,
                      ranks);
}

}  // namespace

absl::StatusOr<ModelSpec> LlamaSpec(const ModelConfig& config) {
  LlamaConfig llama;
  ASSIGN_OR_RETURN(llama.size, ChooseLlamaSize(config));
  const LlamaSize& size = llama.size;
  BlockConfig& block = llama.block;
  block.sequence = {.tokens = size.sequence_length, .causal = true};
  block.features = size.width;
  block.heads = size.heads;
  block.kv_heads = size.kv_heads;
  block.split = config.split;
  block.residual_deviation = ResidualDeviation(size.depth);
  RETURN_IF_ERROR(CheckSplit(block));
  RETURN_IF_ERROR(CheckTensorSplit(size, config.split.tensor));
  llama.rotations = std::make_shared<Rotations>(size, block);
  ModelSpec spec;
  spec.name = config.name;
  spec.layers.push_back(
      EmbeddingLayer(block, size.vocabulary, /*positions=*/false));
  for (int64_t i = 0; i < size.depth; ++i)
    spec.layers.push_back(LlamaBlockLayer(absl::StrCat("block", i), llama));
  spec.layers.push_back(LastNormLayer(llama));
  spec.layers.push_back(HeadLayer(block, size.vocabulary, size.tied_head));
  DescribeLanguageModel(block, size.vocabulary, size.tied_head, spec);
  return spec;
}

}  // namespace rankwise
