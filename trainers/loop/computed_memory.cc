#include "trainers/loop/computed_memory.h"

#include <cmath>
#include <functional>
#include <iterator>
#include <numeric>
#include <vector>

#include "absl/algorithm/container.h"
#include "parallel/sharded/order/unit_bytes.h"
#include "trainers/loop/step_bytes.h"
#include "trainers/loop/unsharded_memory.h"

namespace rankwise {
namespace {

constexpr int64_t kWideBytes = 4;        // of fp32
constexpr int64_t kGradScalerBytes = 8;  // its scale and its count of steps

double Numbers(const std::vector<int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), 1.0,
                         std::multiplies<double>());
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
  return absl::c_any_of(placement.passes, [](const SectionPass& pass) {
    return pass.backward && !pass.completes;
  });
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

KeptTypes KeptTypesOf(Precision precision, c10::DeviceType device,
                      bool has_bf16_parameters) {
  const bool casts = precision != Precision::kFp32;
  const bool on_cpu = device == c10::DeviceType::CPU;
  const double value_bytes = ValueBytes(precision);
  // The residual stream is as wide as the parameters. On a CPU norms keep it as
  // it is; elsewhere autocast makes them keep fp32 copies.
  return {.value_bytes = value_bytes,
          .wide_bytes = has_bf16_parameters && on_cpu ? 2.0 : kWideBytes,
          .mask_bytes = on_cpu ? value_bytes : 1,
          .attention_weight_bytes = on_cpu ? value_bytes : 0,
          .pooled_bytes = on_cpu ? 1 : 4 * value_bytes + 8,
          .casts = casts,
          .casts_weights = casts && !has_bf16_parameters};
}

int64_t ComputeActivations(const TrainConfig& config, c10::DeviceType device,
                           const ModelSpec& model, const LayerRange& range,
                           bool has_bf16_parameters) {
  const KeptTypes types =
      KeptTypesOf(config.precision, device, has_bf16_parameters);
  const auto examples = static_cast<double>(config.data.batch_size);
  double bytes = 0;
  for (size_t layer = range.begin; layer < range.end; ++layer)
    bytes += KeptBytes(model.layers[layer].kept, examples, types);
  if (range.end == model.layers.size())
    bytes += examples * kWideBytes * LossNumbers(model);
  return std::llround(bytes);
}

MemoryParts ComputeMemory(const TrainConfig& config, c10::DeviceType device,
                          const ModelSpec& model,
                          const ModelPlacement& placement) {
  const Sharding& sharding = placement.sharding;
  ParameterShapes shapes;
  for (size_t layer = 0; layer < model.layers.size(); ++layer)
    absl::c_move(ShapesHere(model, placement, layer),
                 std::back_inserter(shapes));
  const int stage = sharding.config.stage;
  const int ranks = stage > 0 ? sharding.ranks : 1;
  const UnitSize size = SizeOf(shapes, ranks);
  const bool bf16 = sharding.has_bf16();
  const auto held = [&](int divided_from, bool in_bf16) {
    return std::llround(
        BytesHeld({.divided_from = divided_from,
                   .in_bf16 = in_bf16,
                   .rows_apart = stage > 0 && sharding.config.offload},
                  size, stage, ranks));
  };
  MemoryParts parts;
  parts.parameter_bytes = held(3, bf16);
  parts.gradient_bytes = held(2, bf16 && !SumsGradients(config, placement));
  parts.optimizer_bytes =
      OptimizerBytes(config, size.padded_numbers / ranks, shapes.size());
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
