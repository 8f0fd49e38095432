#include <ATen/ops/dropout.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>

#include <cmath>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "parallel/tensor/linear.h"
#include "parallel/tensor/vocabulary.h"
#include "third_party/absl/status_macros.h"
#include "trainers/models/catalog.h"
#include "trainers/models/transformer.h"

namespace rankwise {
namespace {

constexpr char kTokenWeight[] = "embedding.token.weight";
constexpr char kHeadWeight[] = "head.weight";

const TransformerSize kSizes[] = {
    {"nano", /*depth=*/4, /*width=*/128, /*heads=*/4, /*vocabulary=*/256,
     /*sequence_length=*/128},
    {"micro", 4, 256, 4, 256, 256},
    {"mini", 6, 384, 6, 256, 256},
    {"small", 8, 512, 8, 256, 512},
    {"gpt2", 12, 768, 12, 50257, 1024},
};

class GptEmbedding : public torch::nn::Module {
 public:
  GptEmbedding(const TransformerSize& size, const BlockConfig& config,
               LayerContext& context)
      : config_(config),
        parallel_(context.parallel),
        token_(register_module(
            "token", std::make_shared<Embedding>(size.vocabulary, size.width))),
        position_(register_module(
            "position",
            std::make_shared<Embedding>(size.sequence_length, size.width))) {
    context.Divide(token_->weight(), {.dim = 0, .size = size.vocabulary});
  }

  // Returns the embeddings of this rank's tokens along cp between layers.
  torch::Tensor Forward(const torch::Tensor& tokens) const {
    const torch::Tensor here =
        ContextSlice(tokens, 1, config_.sequence, parallel_.context);
    torch::Tensor positions =
        ContextSlice(position_->weight().slice(/*dim=*/0, 0, tokens.size(1)), 0,
                     config_.sequence, parallel_.context);
    const TensorParallel& tp = parallel_.tensor;
    if (tp.sequence_parallel) positions = ScatterToRanks(positions, 0, tp);
    return at::dropout(
        VocabularyParallelEmbedding(here, token_->weight(), tp) + positions,
        config_.dropout, is_training());
  }

  const torch::Tensor& token_weight() const { return token_->weight(); }

 private:
  const BlockConfig config_;
  const ModelParallel parallel_;
  std::shared_ptr<Embedding> token_, position_;
};

// Logits of every token. `weight` is another layer's, or registered here.
class Head : public torch::nn::Module {
 public:
  Head(torch::Tensor weight, bool owns, int64_t tokens, TensorParallel tp)
      : weight_(owns ? register_parameter("weight", weight) : weight),
        tokens_(tokens),
        tp_(std::move(tp)) {}

  torch::Tensor Forward(const torch::Tensor& x) const {
    // A tied weight is on its owner's device.
    return ColumnParallelLinear(x, weight_.to(x.device()), /*bias=*/{}, tokens_,
                                tp_);
  }

  const torch::Tensor& weight() const { return weight_; }

 private:
  torch::Tensor weight_;
  const int64_t tokens_;
  const TensorParallel tp_;
};

LayerSpec EmbeddingLayer(const TransformerSize& size,
                         const BlockConfig& block) {
  const TransformerPart part = TransformerPartOf(block);
  LayerMemory memory = EmbeddingMemory(part, size.vocabulary);
  return {.name = "embedding",
          .output_shape = {size.sequence_length, size.width},
          .part_shape = {part.tokens_between, size.width},
          .parameters = (size.vocabulary + size.sequence_length) * size.width,
          .part_parameters = std::move(memory.parameters),
          .kept = memory.kept,
          .exchanged_along_tp = ExchangesOfTokens(1, block),
          .has_dropout = block.dropout > 0,
          .build = [size, block](LayerContext& context) {
            auto embedding =
                std::make_shared<GptEmbedding>(size, block, context);
            context.weights[kTokenWeight] = embedding->token_weight();
            return MakeLayer(std::move(embedding));
          }};
}

std::shared_ptr<Head> BuildHead(const TransformerSize& size,
                                const BlockConfig& block, bool tied,
                                LayerContext& context) {
  const TensorParallel& tp = context.parallel.tensor;
  const int64_t tokens = TokensHere(block.sequence, block.split);
  const Division by_vocabulary{.dim = 0, .size = size.vocabulary};
  if (!tied) {
    auto head = std::make_shared<Head>(
        at::empty({size.vocabulary, size.width}).normal_(0, kInitialDeviation),
        /*owns=*/true, tokens, tp);
    context.Divide(head->weight(), by_vocabulary);
    return head;
  }
  const torch::Tensor& owned = context.weights.at(kTokenWeight);
  if (context.owner_kept.at(kTokenWeight))
    return std::make_shared<Head>(owned, /*owns=*/false, tokens, tp);
  auto head =
      std::make_shared<Head>(owned.detach().clone(), /*owns=*/true, tokens, tp);
  // A copy of the owner's part of the weight.
  if (tp.size() > 1)
    context.divided.emplace_back(head->weight(), by_vocabulary);
  return head;
}

LayerSpec HeadLayer(const TransformerSize& size, const BlockConfig& block,
                    bool tied) {
  const int64_t weights = size.vocabulary * size.width;
  const TransformerPart part = TransformerPartOf(block);
  LayerMemory memory = HeadMemory(part, size.vocabulary);
  const int64_t vocabulary = memory.parameters[0][0];
  if (tied) memory.parameters.clear();
  return {.name = "head",
          .output_shape = {size.sequence_length, size.vocabulary},
          .part_shape = {part.tokens_here, vocabulary},
          .parameters = tied ? 0 : weights,
          .part_parameters = std::move(memory.parameters),
          .kept = memory.kept,
          .exchanged_along_tp = ExchangesOfTokens(1, block),
          .flops = 2.0 * static_cast<double>(weights) *
                   static_cast<double>(size.sequence_length),
          .build = [size, block, tied](LayerContext& context) {
            return MakeLayer(BuildHead(size, block, tied, context));
          }};
}

}  // namespace

absl::StatusOr<ModelSpec> GptSpec(const ModelConfig& config) {
  ASSIGN_OR_RETURN(const TransformerSize size, ChooseSize(config, kSizes));
  ModelSpec spec;
  spec.name = config.name;
  spec.example_shape = {size.sequence_length};
  spec.num_classes = size.vocabulary;
  spec.default_dataset = "tokens";
  BlockConfig block;
  block.sequence = {.tokens = size.sequence_length, .causal = true};
  block.features = size.width;
  block.heads = size.heads;
  block.split = config.split;
  block.dropout = config.dropout;
  block.residual_deviation =
      kInitialDeviation / std::sqrt(2.0 * static_cast<double>(size.depth));
  RETURN_IF_ERROR(CheckSplit(block));
  spec.target_sequence = block.sequence;
  spec.divided_classes = config.split.tensor > 1;
  spec.layers.push_back(EmbeddingLayer(size, block));
  for (int64_t i = 0; i < size.depth; ++i)
    spec.layers.push_back(BlockLayer(absl::StrCat("block", i), block));
  spec.layers.push_back(NormLayer("norm", block));
  spec.layers.push_back(HeadLayer(size, block, config.tied_head));
  if (config.tied_head) {
    spec.ties = {{0, spec.layers.size() - 1, kTokenWeight, kHeadWeight,
                  spec.layers[0].part_parameters[0]}};
  }
  return spec;
}

}  // namespace rankwise
