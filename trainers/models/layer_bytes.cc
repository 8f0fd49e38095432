#include "trainers/models/layer_bytes.h"

#include <algorithm>
#include <vector>

namespace rankwise {
namespace {

constexpr double kWideBytes = 4;  // fp32 in every precision

double Elements(const std::vector<int64_t>& shape) {
  double elements = 1;
  for (const int64_t size : shape) elements *= static_cast<double>(size);
  return elements;
}

// Returns the bytes of weights that the layer reads, its own or tied ones.
double WeightBytes(const LayerSpec& layer) {
  double weights = 0;
  for (const auto& shape : layer.part_parameters) weights += Elements(shape);
  if (weights == 0) weights = layer.kept.cast_weights;
  return kWideBytes * weights;
}

}  // namespace

LayerBytes BytesOf(const ModelSpec& spec, size_t layer, double examples,
                   double value_bytes) {
  const LayerSpec& own = spec.layers[layer];
  const bool first = layer == 0;
  const double input =
      examples *
      (first ? kWideBytes * Elements(spec.example_shape)
             : value_bytes * Elements(spec.layers[layer - 1].part_shape));
  const double output = examples * value_bytes * Elements(own.part_shape);
  const double weights = WeightBytes(own);
  // Stored in addition to the input.
  const double kept =
      std::max(0.0, KeptBytes(own.kept, examples,
                              {.value_bytes = value_bytes,
                               .mask_bytes = 0,
                               .attention_weight_bytes = value_bytes}) -
                        (own.keeps_input && !first ? input : 0.0));
  const double input_gradient = first ? 0 : input;
  return {
      .forward = input + weights + kept + output,
      // Reads these and the output's gradient, and writes the gradients of the
      // input and the weights.
      .backward = input + weights + kept + output + input_gradient + weights};
}

}  // namespace rankwise
