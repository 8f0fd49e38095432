#include <ATen/ops/dropout.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>

#include <cmath>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
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
  GptEmbedding(const TransformerSize& size, double dropout)
      : dropout_(dropout),
        token_(register_module(
            "token", std::make_shared<Embedding>(size.vocabulary, size.width))),
        position_(register_module(
            "position",
            std::make_shared<Embedding>(size.sequence_length, size.width))) {}

  torch::Tensor Forward(const torch::Tensor& tokens) const {
    const torch::Tensor positions =
        position_->weight().slice(/*dim=*/0, 0, tokens.size(1));
    return at::dropout(at::embedding(token_->weight(), tokens) + positions,
                       dropout_, is_training());
  }

  const torch::Tensor& token_weight() const { return token_->weight(); }

 private:
  const double dropout_;
  std::shared_ptr<Embedding> token_, position_;
};

// Logits of every token. `weight` is another layer's, or registered here.
class Head : public torch::nn::Module {
 public:
  Head(torch::Tensor weight, bool owns)
      : weight_(owns ? register_parameter("weight", weight) : weight) {}

  torch::Tensor Forward(const torch::Tensor& x) const {
    // A tied weight lies on its owner's device.
    return at::linear(x, weight_.to(x.device()));
  }

 private:
  torch::Tensor weight_;
};

LayerSpec EmbeddingLayer(const TransformerSize& size, double dropout) {
  return {.name = "embedding",
          .output_shape = {size.sequence_length, size.width},
          .parameters = (size.vocabulary + size.sequence_length) * size.width,
          .has_dropout = dropout > 0,
          .build = [size, dropout](LayerContext& context) {
            auto embedding = std::make_shared<GptEmbedding>(size, dropout);
            context.weights[kTokenWeight] = embedding->token_weight();
            return MakeLayer(std::move(embedding));
          }};
}

std::shared_ptr<Head> BuildHead(const TransformerSize& size, bool tied,
                                LayerContext& context) {
  if (!tied) {
    return std::make_shared<Head>(
        at::empty({size.vocabulary, size.width}).normal_(0, kInitialDeviation),
        /*owns=*/true);
  }
  const torch::Tensor& owned = context.weights.at(kTokenWeight);
  if (context.owner_kept.at(kTokenWeight))
    return std::make_shared<Head>(owned, /*owns=*/false);
  return std::make_shared<Head>(owned.detach().clone(), /*owns=*/true);
}

LayerSpec HeadLayer(const TransformerSize& size, bool tied) {
  const int64_t weights = size.vocabulary * size.width;
  return {.name = "head",
          .output_shape = {size.sequence_length, size.vocabulary},
          .parameters = tied ? 0 : weights,
          .flops = 2.0 * static_cast<double>(weights) *
                   static_cast<double>(size.sequence_length),
          .build = [size, tied](LayerContext& context) {
            return MakeLayer(BuildHead(size, tied, context));
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
  block.tokens = size.sequence_length;
  block.features = size.width;
  block.heads = size.heads;
  block.causal = true;
  block.dropout = config.dropout;
  block.residual_deviation =
      kInitialDeviation / std::sqrt(2.0 * static_cast<double>(size.depth));
  spec.layers.push_back(EmbeddingLayer(size, config.dropout));
  for (int64_t i = 0; i < size.depth; ++i)
    spec.layers.push_back(BlockLayer(absl::StrCat("block", i), block));
  spec.layers.push_back(NormLayer("norm", {size.sequence_length, size.width}));
  spec.layers.push_back(HeadLayer(size, config.tied_head));
  if (config.tied_head) {
    spec.ties = {{0, spec.layers.size() - 1, kTokenWeight, kHeadWeight}};
  }
  return spec;
}

}  // namespace rankwise
