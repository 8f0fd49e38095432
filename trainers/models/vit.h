// The vision transformer (Dosovitskiy 2020) for 32x32 colour images, in patches
// of 4x4.
#ifndef RANKWISE_TRAINERS_MODELS_VIT_H_
#define RANKWISE_TRAINERS_MODELS_VIT_H_

#include "absl/status/statusor.h"
#include "trainers/models/model.h"

namespace rankwise {

// input [B, 3, 32, 32]; output logits [B, 10]. Sizes: nano (4 blocks of 128
// features; the default), micro (6 of 192), and of DeiT (Touvron 2021) tiny (12
// of 192), small (12 of 384) and base (12 of 768).
//
// Layers: embedding (patches, class token, positions), block0 ..., norm (of the
// class token alone), head. Initial weights N(0, 0.02^2); the class token 0.
absl::StatusOr<ModelSpec> VitSpec(const ModelConfig& config);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_MODELS_VIT_H_
