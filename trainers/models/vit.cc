#include <ATen/ops/cat.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/modules/normalization.h>

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "third_party/absl/status_macros.h"
#include "trainers/models/catalog.h"
#include "trainers/models/transformer.h"

namespace rankwise {
namespace {

constexpr int64_t kChannels = 3;
constexpr int64_t kSide = 32;
constexpr int64_t kPatch = 4;
constexpr int64_t kPatches = (kSide / kPatch) * (kSide / kPatch);
constexpr int64_t kTokens = kPatches + 1;  // the class token first
constexpr int64_t kClasses = 10;

const TransformerSize kSizes[] = {
    {"nano", /*depth=*/4, /*width=*/128, /*heads=*/4, 0, 0},
    {"micro", 6, 192, 3, 0, 0},
    {"tiny", 12, 192, 3, 0, 0},
    {"small", 12, 384, 6, 0, 0},
    {"base", 12, 768, 12, 0, 0},
};

// A convolution with non-overlapping kernels: one affine map of every patch.
class PatchEmbedding : public torch::nn::Module {
 public:
  explicit PatchEmbedding(int64_t features)
      : weight_(register_parameter(
            "weight", at::empty({features, kChannels, kPatch, kPatch})
                          .normal_(0, kInitialDeviation))),
        bias_(register_parameter("bias", at::zeros({features}))) {}

  // Returns [B, patches, features].
  torch::Tensor Forward(const torch::Tensor& images) const {
    return at::conv2d(images, weight_, bias_, /*stride=*/kPatch)
        .flatten(2)
        .transpose(1, 2);
  }

 private:
  torch::Tensor weight_, bias_;
};

class VitEmbedding : public torch::nn::Module {
 public:
  VitEmbedding(const BlockConfig& config, const LayerContext& context)
      : config_(config),
        parallel_(context.parallel),
        patch_(register_module(
            "patch", std::make_shared<PatchEmbedding>(config.features))),
        class_token_(register_parameter("class_token",
                                        at::zeros({1, 1, config.features}))),
        position_(register_module("position", std::make_shared<Embedding>(
                                                  kTokens, config.features))) {}

  // Every rank computes all tokens and keeps its own.
  torch::Tensor Forward(const torch::Tensor& images) const {
    const torch::Tensor patches = patch_->Forward(images);
    const torch::Tensor first =
        class_token_.to(patches.scalar_type()).expand({patches.size(0), 1, -1});
    torch::Tensor tokens =
        ContextSlice(at::cat({first, patches}, 1) + position_->weight(), 1,
                     config_.sequence, parallel_.context);
    const TensorParallel& tp = parallel_.tensor;
    if (tp.sequence_parallel) tokens = ScatterToRanks(tokens, 1, tp);
    return at::dropout(tokens, config_.dropout, is_training());
  }

 private:
  const BlockConfig config_;
  const ModelParallel parallel_;
  std::shared_ptr<PatchEmbedding> patch_;
  torch::Tensor class_token_;
  std::shared_ptr<Embedding> position_;
};

LayerSpec EmbeddingLayer(const BlockConfig& block) {
  constexpr int64_t kPatchInputs = kChannels * kPatch * kPatch;
  const int64_t features = block.features;
  const TransformerPart part = TransformerPartOf(block);
  return {
      .name = "embedding",
      .output_shape = {kTokens, features},
      .part_shape = {part.tokens_between, features},
      // Convolution with bias, class token, positions.
      .parameters = (kPatchInputs + 1 + 1 + kTokens) * features,
      .part_parameters = {{features, kChannels, kPatch, kPatch},
                          {features},
                          {1, 1, features},
                          {kTokens, features}},
      .kept = {.dropout_masks = part.dropout ? part.StreamValues() : 0,
               .cast_values = kChannels * kSide * kSide,
               .cast_weights = static_cast<double>(kPatchInputs * features)},
      .flops = 2.0 * static_cast<double>(kPatches * kPatchInputs * features),
      .has_dropout = block.dropout > 0,
      .build = [block](LayerContext& context) {
        return MakeLayer(std::make_shared<VitEmbedding>(block, context));
      }};
}

// Returns the sequence's first token, [B, features], on every rank; a single
// rank along cp and tp holds it.
torch::Tensor ClassToken(const torch::Tensor& x, const BlockConfig& block,
                         const ModelParallel& parallel) {
  torch::Tensor tokens = x;
  if (parallel.tensor.sequence_parallel) {
    tokens = GatherFromRanks(
        x, /*dim=*/1, TokensHere(block.sequence, block.split), parallel.tensor);
  }
  const torch::Tensor first = tokens.select(/*dim=*/1, 0);
  if (parallel.context.size() == 1) return first;
  return SumOverContext(parallel.context.place() == 0 ? first : first * 0,
                        parallel.context);
}

// [B, tokens, features] to the class token's [B, features], normalised.
LayerSpec ClassTokenNorm(const BlockConfig& block) {
  const auto features = static_cast<double>(block.features);
  // The class token is a view of all tokens, which stay alive with it, unless
  // it is a sum over cp.
  const double kept_tokens =
      block.split.context > 1 ? 1 : static_cast<double>(kTokens);
  return {.name = "norm",
          .output_shape = {block.features},
          .parameters = 2 * block.features,
          .part_parameters = {{block.features}, {block.features}},
          .kept = {.wide_values = kept_tokens * features + 2,
                   .until_weight_grad = features},
          .build = [block](LayerContext& context) {
            torch::nn::LayerNorm norm(
                torch::nn::LayerNormOptions({block.features}));
            return Layer{norm.ptr(), [=, parallel = context.parallel](
                                         const torch::Tensor& x) mutable {
                           return norm->forward(ClassToken(x, block, parallel));
                         }};
          }};
}

LayerSpec HeadLayer(int64_t features) {
  return {.name = "head",
          .output_shape = {kClasses},
          .parameters = (features + 1) * kClasses,
          .part_parameters = {{kClasses, features}, {kClasses}},
          .kept = {.values = static_cast<double>(features),
                   .cast_weights = static_cast<double>(features * kClasses)},
          .flops = 2.0 * static_cast<double>(features * kClasses),
          .build = [features](LayerContext&) {
            return MakeLayer(std::make_shared<Linear>(features, kClasses));
          }};
}

}  // namespace

absl::StatusOr<ModelSpec> VitSpec(const ModelConfig& config) {
  ASSIGN_OR_RETURN(const TransformerSize size, ChooseSize(config, kSizes));
  ModelSpec spec;
  spec.name = config.name;
  spec.example_shape = {kChannels, kSide, kSide};
  spec.num_classes = kClasses;
  spec.default_dataset = "synthetic";
  BlockConfig block;
  block.sequence = {.tokens = kTokens, .causal = false};
  block.features = size.width;
  block.heads = block.kv_heads = size.heads;
  block.split = config.split;
  block.dropout = config.dropout;
  RETURN_IF_ERROR(CheckSplit(block));
  spec.layers.push_back(EmbeddingLayer(block));
  for (int64_t i = 0; i < size.depth; ++i)
    spec.layers.push_back(BlockLayer(absl::StrCat("block", i), block));
  spec.layers.push_back(ClassTokenNorm(block));
  spec.layers.push_back(HeadLayer(size.width));
  return spec;
}

}  // namespace rankwise
