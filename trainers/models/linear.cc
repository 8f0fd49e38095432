#include "trainers/models/linear.h"

#include "trainers/models/layers.h"

namespace rankwise {

ModelSpec LinearSpec() {
  ModelSpec spec;
  spec.name = "linear";
  spec.loss = LossKind::kMeanSquaredError;
  spec.example_shape = {10};
  spec.default_dataset = "linear";
  spec.default_optimizer = "sgd";
  spec.default_learning_rate = 0.01;
  spec.layers = {DenseLayer("fc", {.inputs = 10, .outputs = 1})};
  return spec;
}

}  // namespace rankwise
