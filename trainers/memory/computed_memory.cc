#include "trainers/memory/computed_memory.h"

#include <cmath>
#include <functional>
#include <iterator>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "parallel/sharded/order/unit_bytes.h"
#include "parallel/sharded/order/unit_passes.h"
#include "trainers/loop/step_bytes.h"

namespace rankwise {
namespace {

constexpr int64_t kWideBytes = 4;        // of fp32
constexpr int64_t kGradScalerBytes = 8;  // its scale and step count

double Numbers(const std::vector<int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), 1.0,
                         std::multiplies<double>());
}

int64_t OptimizerBytes(const TrainConfig& config, int64_t numbers,
                       size_t tensors) {
  const bool adam = config.optimizer.name != "sgd";
  const int moments = adam ? 2 : config.optimizer.momentum != 0 ? 1 : 0;
  // Adam also has a step count per tensor.
  const size_t counts = adam ? tensors : 0;
  return kWideBytes * (moments * numbers + static_cast<int64_t>(counts)) +
         (config.precision == Precision::kFp16 ? kGradScalerBytes : 0);
}

// Returns whether a step accumulates the gradients of several micro-batches.
bool SumsGradients(const TrainConfig& config, const ModelPlacement& placement) {
  if (placement.passes.empty()) return config.accumulate > 1;
  return absl::c_any_of(placement.passes, [](const SectionPass& pass) {
    return pass.backward && !pass.completes;
  });
}

// Returns the numbers stored by the loss of one example: the log-probabilities;
// or the output, and the squared errors, reused by ATen for their mean.
double LossNumbers(const ModelSpec& model) {
  const double outputs = Numbers(model.layers.back().part_shape);
  return model.loss == LossKind::kMeanSquaredError ? 2 * outputs : outputs;
}

// Returns the bytes stored if layers store only their input, which has the
// parameters' type. The first layer, whose input needs no gradient, and the
// last, whose backward runs first, store everything.
int64_t RecomputedActivationBytes(const TrainConfig& config,
                                  c10::DeviceType device,
                                  const ModelSpec& model,
                                  const Sharding& sharding) {
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

bool Holds(const ModelPlacement& placement, size_t layer) {
  return placement.layers.empty() ||
         absl::c_any_of(placement.layers, [layer](const LayerRange& range) {
           return range.contains(layer);
         });
}

// Returns a layer's parameter shapes on a rank with `placement`, including
// copies of weights shared with another rank; empty if the rank lacks the
// layer.
ParameterShapes ShapesHere(const ModelSpec& model,
                           const ModelPlacement& placement, size_t layer) {
  if (!Holds(placement, layer)) return {};
  ParameterShapes shapes = model.layers[layer].part_parameters;
  for (const TiedWeight& tie : model.ties) {
    if (tie.user == layer && !Holds(placement, tie.owner))
      shapes.push_back(tie.part_shape);
  }
  return shapes;
}

// Returns the shapes of each unit that a single layer would have. A module has
// a weight and optionally a bias or, for norms, two vectors.
std::vector<ParameterShapes> UnitsOfLayer(const ParameterShapes& shapes,
                                          bool one) {
  std::vector<ParameterShapes> units;
  for (const auto& shape : shapes) {
    const bool begins =
        units.empty() ||
        (!one && (shape.size() > 1 || units.back().size() == 2));
    if (begins) units.emplace_back();
    units.back().push_back(shape);
  }
  return units;
}

class LayoutBuilder {
 public:
  LayoutBuilder(const ModelSpec& model, const ModelPlacement& placement)
      : model_(model), placement_(placement) {}

  UnitLayout Build() {
    const Sharding& sharding = placement_.sharding;
    most_bytes_ = UnitMebibytes(sharding.units).value_or(0) * (1 << 20);
    layout_.sections.resize(model_.layers.size());
    for (size_t layer = 0; layer < model_.layers.size(); ++layer) {
      for (const ParameterShapes& shapes :
           UnitsOfLayer(ShapesHere(model_, placement_, layer),
                        sharding.units != "layer")) {
        AddUnit(layer, SizeOf(shapes, sharding.ranks));
      }
      for (const TiedWeight& tie : model_.ties) {
        if (tie.user == layer && Holds(placement_, layer) &&
            Holds(placement_, tie.owner)) {
          UseOwners(tie);
        }
      }
    }
    return std::move(layout_);
  }

 private:
  void AddUnit(size_t layer, const UnitSize& size) {
    const bool joins =
        !layout_.units.empty() &&
        static_cast<double>(kWideBytes * layout_.units.back().numbers) <
            most_bytes_;
    if (!joins) layout_.units.emplace_back();
    layout_.units.back() += size;
    std::vector<UnitUse>& uses = layout_.sections[layer];
    const size_t index = layout_.units.size() - 1;
    if (uses.empty() || uses.back().unit != index) uses.push_back({index});
    uses.back().numbers += size.numbers;
  }

  // The first unit of a layer holds the weight that others are tied to.
  void UseOwners(const TiedWeight& tie) {
    const size_t index = layout_.sections[tie.owner].front().unit;
    std::vector<UnitUse>& uses = layout_.sections[tie.user];
    const bool used = absl::c_any_of(
        uses, [index](const UnitUse& use) { return use.unit == index; });
    if (!used) uses.push_back({index});
    layout_.tied.insert(index);
  }

  const ModelSpec& model_;
  const ModelPlacement& placement_;
  double most_bytes_ = 0;  // 0 if blocks are not joined
  UnitLayout layout_;
};

}  // namespace

KeptTypes KeptTypesOf(Precision precision, c10::DeviceType device,
                      bool has_bf16_parameters) {
  const bool casts = precision != Precision::kFp32;
  const bool on_cpu = device == c10::DeviceType::CPU;
  const double value_bytes = ValueBytes(precision);
  // The residual stream has the parameters' type. On a CPU norms store it
  // unchanged; elsewhere autocast makes them store fp32 copies.
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
  TrainConfig share = config;  // of one replica
  share.data.batch_size =
      (config.data.batch_size + placement.replicas - 1) / placement.replicas;
  parts.activation_bytes =
      placement.activation_bytes.has_value() ? *placement.activation_bytes
      : sharding.recompute
          ? RecomputedActivationBytes(config, device, model, sharding)
          : ComputeActivations(share, device, model, {0, model.layers.size()},
                               sharding.has_bf16());
  return parts;
}

int64_t ComputeUnsharded(const ModelSpec& model,
                         const ModelPlacement& placement,
                         int64_t micro_batches) {
  const Sharding& sharding = placement.sharding;
  const ShardingConfig& config = sharding.config;
  if (config.stage == 0) return 0;
  UnitMemory memory(
      LayoutBuilder(model, placement).Build(),
      {.zero = config.stage,
       .prefetch = config.prefetch,
       .interleave_micro_batches = !placement.passes.empty()},
      {.zero = config.stage,
       .ranks = sharding.ranks,
       .parameter_bytes =
           sharding.has_bf16() ? 2 : static_cast<int>(kWideBytes)});
  if (placement.passes.empty()) {
    memory.RunMicroBatches(micro_batches, config.reduce_every_micro_batch);
  } else {
    memory.RunPasses(placement.passes);
  }
  return memory.peak();
}

}  // namespace rankwise
