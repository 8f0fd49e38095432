#include "trainers/loop/computed_memory.h"

#include <cmath>
#include <functional>
#include <numeric>
#include <vector>

#include "absl/algorithm/container.h"
#include "trainers/loop/unsharded_memory.h"

namespace rankwise {
namespace {

constexpr int64_t kWideBytes = 4;        // of fp32
constexpr int64_t kGradScalerBytes = 8;  // its scale and its count of steps

using Shape = std::vector<int64_t>;

double Numbers(const Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), 1.0,
                         std::multiplies<double>());
}

// Of a shard along the first dimension, the largest of `ranks`.
int64_t ShardNumbers(const Shape& shape, int ranks) {
  const auto rows = static_cast<double>((shape[0] + ranks - 1) / ranks);
  return static_cast<int64_t>(Numbers(shape) / static_cast<double>(shape[0]) *
                              rows);
}

// Of the parameters that the rank holds: those of its layers, and copies of
// weights that they share with another rank's.
std::vector<Shape> ParameterShapes(const ModelSpec& model,
                                   const std::vector<LayerRange>& ranges) {
  const auto holds = [&ranges](size_t layer) {
    return ranges.empty() ||
           absl::c_any_of(ranges, [layer](const LayerRange& range) {
             return range.contains(layer);
           });
  };
  std::vector<Shape> shapes;
  for (size_t layer = 0; layer < model.layers.size(); ++layer) {
    const std::vector<Shape>& own = model.layers[layer].part_parameters;
    if (holds(layer)) shapes.insert(shapes.end(), own.begin(), own.end());
  }
  for (const TiedWeight& tie : model.ties) {
    if (holds(tie.user) && !holds(tie.owner)) shapes.push_back(tie.part_shape);
  }
  return shapes;
}

int64_t OptimizerBytes(const TrainConfig& config, int64_t numbers,
                       size_t tensors) {
  const bool adam = config.optimizer.name != "sgd";
  const int moments = adam ? 2 : config.optimizer.momentum != 0 ? 1 : 0;
  // Of Adam a count of its steps, too.
  const size_t counts = adam ? tensors : 0;
  return kWideBytes * (moments * numbers + static_cast<int64_t>(counts)) +
         (config.precision == Precision::kFp16 ? kGradScalerBytes : 0);
}

// Whether a step accumulates the gradients of several micro-batches.
bool SumsGradients(const TrainConfig& config, const ModelPlacement& placement) {
  if (placement.passes.empty()) return config.accumulate > 1;
  return absl::c_any_of(placement.passes, [](const Pass& pass) {
    return pass.backward && !pass.completes;
  });
}

// Bytes of `whole` numbers, of which the rank owns `rows`: of the parameters if
// `divided_from` is 3, of their gradients if it is 2.
int64_t ModelBytes(const Sharding& sharding, int divided_from, bool in_bf16,
                   int64_t whole, int64_t rows) {
  const int stage = sharding.config.stage;
  const bool divided = stage >= divided_from;
  // If false, a rank's rows are views of the whole tensors.
  const bool apart = stage > 0 && (in_bf16 || sharding.config.offload);
  return (divided ? 0 : (in_bf16 ? 2 : kWideBytes) * whole) +
         (divided || apart ? kWideBytes * rows : 0);
}

// Of one layer and `examples`.
double KeptBytes(KeptForBackward kept, double examples, Precision precision,
                 c10::DeviceType device, bool has_bf16_parameters) {
  const bool casts = precision != Precision::kFp32;
  const bool on_cpu = device == c10::DeviceType::CPU;
  const double value_bytes = casts ? 2 : kWideBytes;
  // The residual stream is as wide as the parameters. On a CPU norms keep it as
  // it is; elsewhere autocast makes them keep fp32 copies.
  const double wide_bytes = has_bf16_parameters && on_cpu ? 2 : kWideBytes;
  if (has_bf16_parameters) kept.cast_weights = 0;
  double numbers = kept.values;
  if (casts) numbers += kept.cast_values;
  if (on_cpu) numbers += kept.dropout_masks + kept.attention_weights;
  const double masks = on_cpu ? 0 : kept.dropout_masks;
  const double pooled_bytes = on_cpu ? 1 : 4 * value_bytes + 8;
  return examples * (value_bytes * numbers + wide_bytes * kept.wide_values +
                     masks + pooled_bytes * kept.pooled_values) +
         (casts ? value_bytes * kept.cast_weights : 0);
}

// Of one example: the log-probabilities; or the output, and the squared errors,
// in whose memory ATen returns their mean.
double LossNumbers(const ModelSpec& model) {
  const double outputs = Numbers(model.layers.back().part_shape);
  return model.loss == LossKind::kMeanSquaredError ? 2 * outputs : outputs;
}

// Where layers keep only their input, which is as wide as the parameters. The
// first layer, whose input needs no gradient, and the last, whose backward runs
// first, keep everything.
int64_t ComputeRecomputed(const TrainConfig& config, c10::DeviceType device,
                          const ModelSpec& model, const Sharding& sharding) {
  const size_t layers = model.layers.size();
  int64_t bytes = ComputeActivations(config, device, model,
                                     {layers - 1, layers}, sharding.has_bf16());
  if (layers == 1) return bytes;
  bytes +=
      ComputeActivations(config, device, model, {0, 1}, sharding.has_bf16());
  for (size_t layer = 0; layer + 2 < layers; ++layer) {
    bytes += std::llround(static_cast<double>(config.data.batch_size) *
                          (sharding.has_bf16() ? 2 : kWideBytes) *
                          Numbers(model.layers[layer].part_shape));
  }
  return bytes;
}

}  // namespace

int64_t ComputeActivations(const TrainConfig& config, c10::DeviceType device,
                           const ModelSpec& model, const LayerRange& range,
                           bool has_bf16_parameters) {
  const auto examples = static_cast<double>(config.data.batch_size);
  double bytes = 0;
  for (size_t layer = range.begin; layer < range.end; ++layer) {
    bytes += KeptBytes(model.layers[layer].kept, examples, config.precision,
                       device, has_bf16_parameters);
  }
  if (range.end == model.layers.size())
    bytes += examples * kWideBytes * LossNumbers(model);
  return std::llround(bytes);
}

MemoryParts ComputeMemory(const TrainConfig& config, c10::DeviceType device,
                          const ModelSpec& model,
                          const ModelPlacement& placement) {
  const Sharding& sharding = placement.sharding;
  const std::vector<Shape> shapes = ParameterShapes(model, placement.layers);
  int64_t whole = 0, rows = 0;
  for (const Shape& shape : shapes) {
    whole += ShardNumbers(shape, 1);
    rows += ShardNumbers(shape, sharding.config.stage > 0 ? sharding.ranks : 1);
  }
  MemoryParts parts;
  const bool bf16 = sharding.has_bf16();
  parts.parameter_bytes = ModelBytes(sharding, 3, bf16, whole, rows);
  parts.gradient_bytes = ModelBytes(
      sharding, 2, bf16 && !SumsGradients(config, placement), whole, rows);
  parts.optimizer_bytes = OptimizerBytes(config, rows, shapes.size());
  parts.unsharded_bytes = ComputeUnsharded(model, placement, config.accumulate);
  TrainConfig share = config;  // of a replica
  share.data.batch_size =
      (config.data.batch_size + placement.replicas - 1) / placement.replicas;
  parts.activation_bytes =
      placement.activation_bytes.has_value() ? *placement.activation_bytes
      : sharding.recompute
          ? ComputeRecomputed(config, device, model, sharding)
          : ComputeActivations(share, device, model, {0, model.layers.size()},
                               sharding.has_bf16());
  return parts;
}

}  // namespace rankwise
