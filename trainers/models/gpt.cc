#include "absl/strings/str_cat.h"
#include "third_party/absl/status_macros.h"
#include "trainers/models/catalog.h"
#include "trainers/models/transformer.h"
#include "trainers/models/vocabulary.h"

namespace rankwise {
namespace {

const TransformerSize kSizes[] = {
    {"nano", /*depth=*/4, /*width=*/128, /*heads=*/4, /*vocabulary=*/256,
     /*sequence_length=*/128},
    {"micro", 4, 256, 4, 256, 256},
    {"mini", 6, 384, 6, 256, 256},
    {"small", 8, 512, 8, 256, 512},
    {"gpt2", 12, 768, 12, 50257, 1024},
};

}  // namespace

absl::StatusOr<ModelSpec> GptSpec(const ModelConfig& config) {
  ASSIGN_OR_RETURN(const TransformerSize size, ChooseSize(config, kSizes));
  const bool tied = config.tied_head.value_or(true);
  BlockConfig block;
  block.sequence = {.tokens = size.sequence_length, .causal = true};
  block.features = size.width;
  block.heads = block.kv_heads = size.heads;
  block.split = config.split;
  block.dropout = config.dropout;
  block.residual_deviation = ResidualDeviation(size.depth);
  RETURN_IF_ERROR(CheckSplit(block));
  ModelSpec spec;
  spec.name = config.name;
  spec.layers.push_back(
      EmbeddingLayer(block, size.vocabulary, /*positions=*/true));
  for (int64_t i = 0; i < size.depth; ++i)
    spec.layers.push_back(BlockLayer(absl::StrCat("block", i), block));
  spec.layers.push_back(NormLayer("norm", block));
  spec.layers.push_back(HeadLayer(block, size.vocabulary, tied));
  DescribeLanguageModel(block, size.vocabulary, tied, spec);
  return spec;
}

}  // namespace rankwise
