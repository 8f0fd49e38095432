// The first and the last layer of language models.
#ifndef RANKWISE_TRAINERS_MODELS_VOCABULARY_H_
#define RANKWISE_TRAINERS_MODELS_VOCABULARY_H_

#include <cstdint>

#include "trainers/models/model.h"
#include "trainers/models/transformer.h"

namespace rankwise {

// Tokens int64 [B, T] to [B, T, features]: `embedding`, with the parameter
// token.weight [vocabulary, features], and if `positions` position.weight [T,
// features].
LayerSpec EmbeddingLayer(const BlockConfig& block, int64_t vocabulary,
                         bool positions);

// [B, T, features] to the logits [B, T, vocabulary]: `head`, with the parameter
// weight [vocabulary, features], or the token embedding's if `tied` (Press and
// Wolf 2017).
LayerSpec HeadLayer(const BlockConfig& block, int64_t vocabulary, bool tied);

// Sets the fields of `spec`, which must have all its layers, that follow from
// the first and the last layer: shapes of tokens and targets, and the tied
// weight.
void DescribeLanguageModel(const BlockConfig& block, int64_t vocabulary,
                           bool tied, ModelSpec& spec);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_MODELS_VOCABULARY_H_
