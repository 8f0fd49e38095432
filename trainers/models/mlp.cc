#include "trainers/models/mlp.h"

#include "absl/strings/str_cat.h"
#include "trainers/models/layers.h"
#include "trainers/models/sizes.h"

namespace rankwise {
namespace {

constexpr int64_t kPixels = 3 * 32 * 32;
constexpr int64_t kClasses = 10;
constexpr int64_t kDefaultDepth = 2;
constexpr int64_t kDefaultWidth = 512;

}  // namespace

absl::StatusOr<ModelSpec> MlpSpec(const ModelConfig& config) {
  absl::Status status = CheckSizeFlag("depth", config.depth, 10'000);
  if (status.ok()) status = CheckSizeFlag("width", config.width, 1 << 20);
  if (!status.ok()) return status;
  const int64_t depth = config.depth > 0 ? config.depth : kDefaultDepth;
  const int64_t width = config.width > 0 ? config.width : kDefaultWidth;
  ModelSpec spec;
  spec.name = config.name;
  spec.example_shape = {3, 32, 32};
  spec.num_classes = kClasses;
  spec.default_dataset = "synthetic";
  spec.default_optimizer = "adam";
  spec.default_learning_rate = 1e-3;
  for (int64_t i = 0; i <= depth; ++i) {
    DenseConfig layer;
    layer.inputs = i == 0 ? kPixels : width;
    layer.outputs = i == depth ? kClasses : width;
    layer.flatten = i == 0;
    layer.relu = i < depth;
    spec.layers.push_back(DenseLayer(absl::StrCat("fc", i + 1), layer));
  }
  return spec;
}

ModelSpec MpMlpSpec() {
  ModelSpec spec;
  spec.name = "mp_mlp";
  spec.loss = LossKind::kMeanSquaredError;
  spec.example_shape = {1024};
  spec.default_dataset = "regression";
  spec.default_optimizer = "adam";
  spec.default_learning_rate = 1e-3;
  spec.layers = {DenseLayer("fc1", {.inputs = 1024, .outputs = 2048}),
                 ReluLayer("relu", 2048),
                 DenseLayer("fc2", {.inputs = 2048, .outputs = 1024})};
  return spec;
}

}  // namespace rankwise
