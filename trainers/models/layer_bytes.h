// Bytes that a layer moves between a device and its memory, computed from the
// models' layer descriptions.
#ifndef RANKWISE_TRAINERS_MODELS_LAYER_BYTES_H_
#define RANKWISE_TRAINERS_MODELS_LAYER_BYTES_H_

#include <cstddef>

#include "trainers/models/model.h"

namespace rankwise {

struct LayerBytes {
  double forward = 0;
  double backward = 0;
};

// Returns the least bytes for one rank's part of `layer` in a pass over
// `examples`: as if the layer's input, output, weights and tensors stored for
// backward moved between device and memory once per pass, and all else stayed
// in caches. Activations have `value_bytes` each, weights and their gradients
// 4. The formula is in docs/metrics.md.
LayerBytes BytesOf(const ModelSpec& spec, size_t layer, double examples,
                   double value_bytes);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_MODELS_LAYER_BYTES_H_
