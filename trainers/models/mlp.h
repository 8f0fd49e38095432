// Fully connected networks: one for images, as deep and wide as asked for, and
// the two-layer one that model parallelism is taught with.
#ifndef RANKWISE_TRAINERS_MODELS_MLP_H_
#define RANKWISE_TRAINERS_MODELS_MLP_H_

#include "absl/status/statusor.h"
#include "trainers/models/model.h"

namespace rankwise {

// input [B, 3, 32, 32], flattened; output logits [B, 10]. --depth hidden layers
// (default 2) of --width features (default 512) with ReLU: fc1 .. fcN, then
// the output's.
absl::StatusOr<ModelSpec> MlpSpec(const ModelConfig& config);

// fc1 (1024 to 2048), relu, fc2 (2048 to 1024): input and output [B, 1024].
ModelSpec MpMlpSpec();

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_MODELS_MLP_H_
