#include "trainers/loop/unsharded_memory.h"

#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "parallel/sharded/order/unit_passes.h"
#include "trainers/loop/sharded_model.h"

namespace rankwise {
namespace {

constexpr int kFp32Bytes = 4, kBf16Bytes = 2;

bool Holds(const ModelPlacement& placement, size_t layer) {
  return placement.layers.empty() ||
         absl::c_any_of(placement.layers, [layer](const LayerRange& range) {
           return range.contains(layer);
         });
}

// The shapes of each unit that a layer alone would have. A module has a weight
// and perhaps a bias or, as norms, two vectors.
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
        static_cast<double>(kFp32Bytes * layout_.units.back().numbers) <
            most_bytes_;
    if (!joins) layout_.units.emplace_back();
    layout_.units.back() += size;
    std::vector<UnitUse>& uses = layout_.sections[layer];
    const size_t index = layout_.units.size() - 1;
    if (uses.empty() || uses.back().unit != index) uses.push_back({index});
    uses.back().numbers += size.numbers;
  }

  // The first unit of a layer has the weight that others are tied to.
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
  double most_bytes_ = 0;  // 0: blocks are not joined
  UnitLayout layout_;
};

}  // namespace

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
       .micro_batches_take_turns = !placement.passes.empty()},
      {.zero = config.stage,
       .ranks = sharding.ranks,
       .parameter_bytes = sharding.has_bf16() ? kBf16Bytes : kFp32Bytes});
  if (placement.passes.empty()) {
    memory.RunMicroBatches(micro_batches, config.reduce_every_micro_batch);
  } else {
    memory.RunPasses(placement.passes);
  }
  return memory.peak();
}

}  // namespace rankwise
