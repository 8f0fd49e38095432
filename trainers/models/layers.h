// Layers that several models are made of. Their FLOPs count matrix products and
// convolutions, as is usual; biases, activations and norms are left out.
#ifndef RANKWISE_TRAINERS_MODELS_LAYERS_H_
#define RANKWISE_TRAINERS_MODELS_LAYERS_H_

#include <cstdint>
#include <string>

#include "trainers/models/model.h"

namespace rankwise {

struct DenseConfig {
  int64_t inputs = 0, outputs = 0;
  bool flatten = false;  // the input of every example first
  bool relu = false;     // of the output
};

// torch.nn.Linear. [B, inputs] (with `flatten`: that many values in any shape)
// to [B, outputs].
LayerSpec DenseLayer(const std::string& name, const DenseConfig& config);

// [B, features] to the same; no parameters.
LayerSpec ReluLayer(const std::string& name, int64_t features);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_MODELS_LAYERS_H_
