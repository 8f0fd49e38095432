#include "trainers/models/vocabulary.h"

#include <ATen/ops/dropout.h>
#include <ATen/ops/empty.h>

#include <memory>
#include <utility>

#include "parallel/tensor/linear.h"
#include "parallel/tensor/vocabulary.h"

namespace rankwise {
namespace {

constexpr char kTokenWeight[] = "embedding.token.weight";
constexpr char kHeadWeight[] = "head.weight";

class TokenEmbedding : public torch::nn::Module {
 public:
  TokenEmbedding(const BlockConfig& config, int64_t vocabulary, bool positions,
                 LayerContext& context)
      : config_(config),
        parallel_(context.parallel),
        token_(register_module("token", std::make_shared<Embedding>(
                                            vocabulary, config.features))) {
    if (positions) {
      position_ = register_module(
          "position",
          std::make_shared<Embedding>(config.sequence.tokens, config.features));
    }
    context.Divide(token_->weight(), {.dim = 0, .blocks = {vocabulary}});
  }

  // Returns the embeddings of this rank's tokens along cp between layers.
  torch::Tensor Forward(const torch::Tensor& tokens) const {
    const torch::Tensor here =
        ContextSlice(tokens, 1, config_.sequence, parallel_.context);
    torch::Tensor x =
        VocabularyParallelEmbedding(here, token_->weight(), parallel_.tensor);
    if (position_ != nullptr) x = x + Positions(tokens.size(1));
    return at::dropout(x, config_.dropout, is_training());
  }

  const torch::Tensor& token_weight() const { return token_->weight(); }

 private:
  torch::Tensor Positions(int64_t tokens) const {
    const TensorParallel& tp = parallel_.tensor;
    const torch::Tensor here =
        ContextSlice(position_->weight().slice(/*dim=*/0, 0, tokens), 0,
                     config_.sequence, parallel_.context);
    return tp.sequence_parallel ? ScatterToRanks(here, 0, tp) : here;
  }

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

std::shared_ptr<Head> BuildHead(const BlockConfig& block, int64_t vocabulary,
                                bool tied, LayerContext& context) {
  const TensorParallel& tp = context.parallel.tensor;
  const int64_t tokens = TokensHere(block.sequence, block.split);
  const Division by_vocabulary{.dim = 0, .blocks = {vocabulary}};
  if (!tied) {
    auto head = std::make_shared<Head>(
        at::empty({vocabulary, block.features}).normal_(0, kInitialDeviation),
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

}  // namespace

LayerSpec EmbeddingLayer(const BlockConfig& block, int64_t vocabulary,
                         bool positions) {
  const TransformerPart part = TransformerPartOf(block);
  const int64_t tokens = block.sequence.tokens;
  LayerMemory memory = EmbeddingMemory(part, vocabulary, positions);
  return {
      .name = "embedding",
      .output_shape = {tokens, block.features},
      .part_shape = {part.tokens_between, block.features},
      .parameters = (vocabulary + (positions ? tokens : 0)) * block.features,
      .part_parameters = std::move(memory.parameters),
      .kept = memory.kept,
      .exchanged_along_tp = ExchangesOfTokens(1, block),
      .has_dropout = block.dropout > 0,
      .build = [=](LayerContext& context) {
        auto embedding = std::make_shared<TokenEmbedding>(block, vocabulary,
                                                          positions, context);
        context.weights[kTokenWeight] = embedding->token_weight();
        return MakeLayer(std::move(embedding));
      }};
}

LayerSpec HeadLayer(const BlockConfig& block, int64_t vocabulary, bool tied) {
  const int64_t weights = vocabulary * block.features;
  const int64_t tokens = block.sequence.tokens;
  const TransformerPart part = TransformerPartOf(block);
  LayerMemory memory = HeadMemory(part, vocabulary);
  const int64_t vocabulary_here = memory.parameters[0][0];
  if (tied) memory.parameters.clear();
  return {
      .name = "head",
      .output_shape = {tokens, vocabulary},
      .part_shape = {part.tokens_here, vocabulary_here},
      .parameters = tied ? 0 : weights,
      .part_parameters = std::move(memory.parameters),
      .kept = memory.kept,
      .exchanged_along_tp = ExchangesOfTokens(1, block),
      .flops = 2.0 * static_cast<double>(weights) * static_cast<double>(tokens),
      .build = [=](LayerContext& context) {
        return MakeLayer(BuildHead(block, vocabulary, tied, context));
      }};
}

void DescribeLanguageModel(const BlockConfig& block, int64_t vocabulary,
                           bool tied, ModelSpec& spec) {
  spec.example_shape = {block.sequence.tokens};
  spec.num_classes = vocabulary;
  spec.default_dataset = "tokens";
  spec.target_sequence = block.sequence;
  spec.divided_classes = block.split.tensor > 1;
  if (!tied) return;
  spec.ties = {{0, spec.layers.size() - 1, kTokenWeight, kHeadWeight,
                spec.layers[0].part_parameters[0]}};
}

}  // namespace rankwise
