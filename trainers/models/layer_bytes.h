// What a layer has to move between a device and its memory, from what the
// models declare of their layers.
#ifndef RANKWISE_TRAINERS_MODELS_LAYER_BYTES_H_
#define RANKWISE_TRAINERS_MODELS_LAYER_BYTES_H_

#include <cstddef>

#include "trainers/models/model.h"

namespace rankwise {

struct LayerBytes {
  double forward = 0;
  double backward = 0;
};

// Of one rank's part of `layer` in a pass over `examples`, at least: as if each
// layer's input, output, weights and what it keeps for backward crossed between
// device and memory once a pass, and all else stayed in caches. Activations
// have `value_bytes` each, weights and their gradients 4. docs/metrics.md has
// the formula.
LayerBytes BytesOf(const ModelSpec& spec, size_t layer, double examples,
                   double value_bytes);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_MODELS_LAYER_BYTES_H_
