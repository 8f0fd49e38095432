#include "trainers/loop/unsharded_memory.h"

#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "parallel/sharded/order/unit_bytes.h"
#include "parallel/sharded/order/unit_order.h"
#include "trainers/loop/sharded_model.h"

namespace rankwise {
namespace {

using Shape = std::vector<int64_t>;

constexpr int kFp32Bytes = 4, kBf16Bytes = 2;

// A layer's use of a unit. `numbers`: elements that no earlier layer uses;
// their gradients are complete after this layer's backward.
struct Use {
  size_t unit = 0;
  int64_t numbers = 0;
};

struct Layout {
  std::vector<UnitSize> units;
  std::set<size_t> tied;                   // with a weight of two layers here
  std::vector<std::vector<Use>> sections;  // by layer
};

// The shapes of each unit that a layer alone would have. A module has a weight
// and perhaps a bias or, as norms, two vectors.
std::vector<std::vector<Shape>> UnitsOfLayer(const std::vector<Shape>& shapes,
                                             bool one) {
  std::vector<std::vector<Shape>> units;
  for (const Shape& shape : shapes) {
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

  Layout Build() {
    const Sharding& sharding = placement_.sharding;
    most_bytes_ = UnitMebibytes(sharding.units).value_or(0) * (1 << 20);
    layout_.sections.resize(model_.layers.size());
    for (size_t layer = 0; layer < model_.layers.size(); ++layer) {
      if (!Holds(layer)) continue;
      for (const auto& shapes :
           UnitsOfLayer(ShapesOf(layer), sharding.units != "layer")) {
        AddUnit(layer, shapes);
      }
      for (const TiedWeight& tie : model_.ties) {
        if (tie.user == layer && Holds(tie.owner)) UseOwners(tie);
      }
    }
    return std::move(layout_);
  }

 private:
  bool Holds(size_t layer) const {
    return placement_.layers.empty() ||
           absl::c_any_of(placement_.layers, [layer](const LayerRange& range) {
             return range.contains(layer);
           });
  }

  std::vector<Shape> ShapesOf(size_t layer) const {
    std::vector<Shape> shapes = model_.layers[layer].part_parameters;
    for (const TiedWeight& tie : model_.ties) {
      if (tie.user == layer && !Holds(tie.owner))
        shapes.push_back(tie.part_shape);
    }
    return shapes;
  }

  void AddUnit(size_t layer, const std::vector<Shape>& shapes) {
    const bool joins =
        !layout_.units.empty() &&
        static_cast<double>(kFp32Bytes * layout_.units.back().numbers) <
            most_bytes_;
    if (!joins) layout_.units.emplace_back();
    UnitSize& unit = layout_.units.back();
    int64_t numbers = 0;
    const int64_t ranks = placement_.sharding.ranks;
    for (const Shape& shape : shapes) {
      int64_t row = 1;
      for (size_t i = 1; i < shape.size(); ++i) row *= shape[i];
      numbers += shape[0] * row;
      unit.padded_numbers += (shape[0] + ranks - 1) / ranks * ranks * row;
    }
    unit.numbers += numbers;
    std::vector<Use>& uses = layout_.sections[layer];
    const size_t index = layout_.units.size() - 1;
    if (uses.empty() || uses.back().unit != index) uses.push_back({index});
    uses.back().numbers += numbers;
  }

  // The first unit of a layer has the weight that others are tied to.
  void UseOwners(const TiedWeight& tie) {
    const size_t index = layout_.sections[tie.owner].front().unit;
    std::vector<Use>& uses = layout_.sections[tie.user];
    const bool used = absl::c_any_of(
        uses, [index](const Use& use) { return use.unit == index; });
    if (!used) uses.push_back({index});
    layout_.tied.insert(index);
  }

  const ModelSpec& model_;
  const ModelPlacement& placement_;
  double most_bytes_ = 0;  // 0: blocks are not joined
  Layout layout_;
};

// Makes a step's calls to UnitOrder and counts bytes.
class Replay {
 public:
  Replay(const Layout& layout, const Sharding& sharding, bool takes_turns)
      : layout_(layout),
        takes_turns_(takes_turns),
        bytes_(layout.units,
               {.zero = sharding.config.stage,
                .ranks = sharding.ranks,
                .parameter_bytes = sharding.config.parameter_type.has_value()
                                       ? kBf16Bytes
                                       : kFp32Bytes}),
        order_(bytes_, layout.units.size(),
               {.zero = sharding.config.stage,
                .prefetch = sharding.config.prefetch,
                .micro_batches_take_turns = takes_turns}),
        awaited_(layout.units.size()),
        to_start_(layout.units.size()) {
    for (size_t unit = 0; unit < layout.units.size(); ++unit)
      to_start_[unit] = layout.units[unit].numbers;
    for (const std::vector<Use>& uses : layout.sections) {
      std::vector<size_t> units;
      for (const Use& use : uses) units.push_back(use.unit);
      order_.AddSection(std::move(units));
    }
  }

  void Forward(const LayerRange& layers) {
    for (size_t section = layers.begin; section < layers.end; ++section) {
      order_.BeginForward(section);
      order_.EndForward(section, /*trains=*/true);
    }
  }

  void Backward(const LayerRange& layers, bool reduces) {
    for (size_t section = layers.end; section-- > layers.begin;) {
      const std::vector<Use>& uses = layout_.sections[section];
      for (const Use& use : uses) {
        if (order_.last_section(use.unit) == section)
          awaited_[use.unit] = layout_.units[use.unit].numbers;
      }
      order_.BeginBackward(section);
      for (size_t i = uses.size(); i-- > 0;)
        GradientsCome(uses[i], section, reduces);
    }
  }

  // The last backward of `layers` in a step whose micro-batches take turns.
  void Complete(const LayerRange& layers) {
    for (size_t section = layers.begin; section < layers.end; ++section) {
      for (const Use& use : layout_.sections[section]) {
        const bool completes =
            use.numbers > 0 && (to_start_[use.unit] -= use.numbers) == 0;
        if (completes && layout_.tied.count(use.unit) == 0)
          order_.Reduce(use.unit);
      }
    }
  }

  // After the backward of a micro-batch, or of all that take turns.
  void Finish(bool updates) {
    if (takes_turns_) {
      for (const size_t unit : layout_.tied) order_.Reduce(unit);
    } else {
      order_.EndBackward();
    }
    order_.EndStep(updates);
  }

  int64_t peak() const { return bytes_.peak(); }

 private:
  void GradientsCome(const Use& use, size_t section, bool reduces) {
    if (use.numbers == 0) return;
    bytes_.AddGradients(use.unit, section, use.numbers);
    if ((awaited_[use.unit] -= use.numbers) == 0)
      order_.FinishUnit(use.unit, reduces);
  }

  const Layout& layout_;
  const bool takes_turns_;
  UnitBytes bytes_;
  UnitOrder order_;
  // By unit: numbers whose gradients this backward still owes, and numbers not
  // yet passed to Complete.
  std::vector<int64_t> awaited_, to_start_;
};

void ReplayStep(Replay& replay, const ModelPlacement& placement,
                const LayerRange& all, int64_t micro_batches) {
  for (const Pass& pass : placement.passes) {
    if (!pass.backward) {
      replay.Forward(pass.layers);
      continue;
    }
    replay.Backward(pass.layers, /*reduces=*/false);
    if (pass.completes) replay.Complete(pass.layers);
  }
  if (!placement.passes.empty()) return replay.Finish(/*updates=*/true);
  for (int64_t i = 0; i < micro_batches; ++i) {
    const bool last = i + 1 == micro_batches;
    replay.Forward(all);
    replay.Backward(all,
                    last || placement.sharding.config.reduce_every_micro_batch);
    replay.Finish(/*updates=*/last);
  }
}

}  // namespace

int64_t ComputeUnsharded(const ModelSpec& model,
                         const ModelPlacement& placement,
                         int64_t micro_batches) {
  if (placement.sharding.config.stage == 0) return 0;
  const Layout layout = LayoutBuilder(model, placement).Build();
  Replay replay(layout, placement.sharding,
                /*takes_turns=*/!placement.passes.empty());
  ReplayStep(replay, placement, {0, model.layers.size()}, micro_batches);
  return replay.peak();
}

}  // namespace rankwise
