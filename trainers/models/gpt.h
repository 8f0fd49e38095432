// GPT-2 (Radford 2019): a decoder-only transformer that predicts the next
// token.
#ifndef RANKWISE_TRAINERS_MODELS_GPT_H_
#define RANKWISE_TRAINERS_MODELS_GPT_H_

#include "absl/status/statusor.h"
#include "trainers/models/model.h"

namespace rankwise {

// input tokens int64 [B, T]; output logits [B, T, vocabulary]. Sizes, with
// their parameters: nano (0.8 M; the default), micro (3.3 M), mini (10.8 M),
// small (25.6 M), gpt2 (124 M, as published). All but gpt2 have a vocabulary of
// 256, bytes. T is --sequence_length, and the position embedding's length.
//
// Layers: embedding, block0 ..., norm, head. With a tied head the head is the
// token embedding (Press and Wolf 2017). Initial weights as GPT-2's: N(0,
// 0.02^2), those that write to the residual stream divided by sqrt(2 depth).
absl::StatusOr<ModelSpec> GptSpec(const ModelConfig& config);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_MODELS_GPT_H_
