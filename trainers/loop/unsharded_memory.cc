#include "trainers/loop/unsharded_memory.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "parallel/sharded/sharding.h"
#include "trainers/loop/sharded_model.h"

namespace rankwise {
namespace {

using Shape = std::vector<int64_t>;

constexpr int64_t kFp32Bytes = 4, kBf16Bytes = 2;

struct Unit {
  int64_t numbers = 0;         // of its parameters
  int64_t padded_numbers = 0;  // in a buffer of all ranks' lines
  size_t first_section = 0, last_section = 0;
};

// A layer's use of a unit. The gradients of `numbers` parameters are complete
// when its backward is over: of those that no earlier layer uses.
struct Use {
  size_t unit = 0;
  int64_t numbers = 0;
  bool counted = false;  // these gradients have memory
};

struct Layout {
  std::vector<Unit> units;
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
    if (!joins) layout_.units.push_back({.first_section = layer});
    Unit& unit = layout_.units.back();
    unit.last_section = layer;
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
    layout_.units[index].last_section = tie.user;
  }

  const ModelSpec& model_;
  const ModelPlacement& placement_;
  double most_bytes_ = 0;  // 0: blocks are not joined
  Layout layout_;
};

// What FullyShardedDataParallel does in a step, in bytes.
class Replay {
 public:
  Replay(Layout layout, const Sharding& sharding)
      : config_(sharding.config),
        ranks_(sharding.ranks),
        parameter_bytes_(config_.parameter_type.has_value() ? kBf16Bytes
                                                            : kFp32Bytes),
        layout_(std::move(layout)),
        states_(layout_.units.size()) {}

  void Forward(const LayerRange& layers, bool takes_turns) {
    for (size_t section = layers.begin; section < layers.end; ++section) {
      for (const Use& use : layout_.sections[section]) Need(use.unit);
      Prefetch(section, 1);
      const bool stays = section + 1 == layout_.sections.size() && !takes_turns;
      for (const Use& use : layout_.sections[section]) {
        if (layout_.units[use.unit].last_section == section && !stays)
          Free(use.unit);
      }
    }
  }

  void Backward(const LayerRange& layers, bool reduces) {
    for (size_t section = layers.end; section-- > layers.begin;) {
      std::vector<Use>& uses = layout_.sections[section];
      for (const Use& use : uses) {
        Need(use.unit);
        if (layout_.units[use.unit].last_section == section)
          states_[use.unit].awaited = layout_.units[use.unit].numbers;
      }
      Prefetch(section, -1);
      for (size_t i = uses.size(); i-- > 0;) GradientsCome(uses[i], reduces);
    }
  }

  // The last backward of `layers` in a step whose micro-batches take turns.
  void Complete(const LayerRange& layers) {
    for (size_t section = layers.begin; section < layers.end; ++section) {
      for (const Use& use : layout_.sections[section]) {
        State& state = states_[use.unit];
        state.started += use.numbers;
        if (use.numbers > 0 && state.started == layout_.units[use.unit].numbers)
          Reduce(use.unit);
      }
    }
  }

  // After the backward of a micro-batch, or of all that take turns.
  void Finish(bool updates, bool takes_turns) {
    while (!reducing_.empty()) FinishReduce();
    for (size_t unit = 0; unit < states_.size(); ++unit) {
      states_[unit].started = 0;
      if (config_.stage == 3 && !takes_turns) Free(unit);
      if (config_.stage < 3 && updates) states_[unit].at = At::kSharded;
    }
  }

  int64_t peak() const { return bytes_.peak; }

 private:
  enum class At { kSharded, kGathering, kWhole };
  struct State {
    At at = At::kSharded;
    int64_t awaited = 0;  // numbers whose gradients this backward still owes
    int64_t started = 0;  // numbers that Complete was called for
  };

  int64_t GatherBytes(size_t unit) const {
    return ranks_ == 1 ? 0
                       : parameter_bytes_ * layout_.units[unit].padded_numbers;
  }
  int64_t WholeBytes(size_t unit) const {
    return config_.stage < 3 ? 0
                             : parameter_bytes_ * layout_.units[unit].numbers;
  }

  void Gather(size_t unit) {
    states_[unit].at = At::kGathering;
    bytes_.Add(GatherBytes(unit));
  }

  void Need(size_t unit) {
    if (states_[unit].at == At::kSharded) Gather(unit);
    if (std::exchange(states_[unit].at, At::kWhole) == At::kWhole) return;
    bytes_.Add(WholeBytes(unit));
    bytes_.Add(-GatherBytes(unit));
  }

  void Free(size_t unit) {
    if (config_.stage < 3 || states_[unit].at == At::kSharded) return;
    Need(unit);
    states_[unit].at = At::kSharded;
    bytes_.Add(-WholeBytes(unit));
  }

  void Prefetch(size_t section, int step) {
    const auto begin = step > 0 ? &Unit::first_section : &Unit::last_section;
    const auto end = static_cast<int64_t>(layout_.sections.size());
    int started = 0;
    for (auto next = static_cast<int64_t>(section) + step;
         next >= 0 && next < end; next += step) {
      const auto at = static_cast<size_t>(next);
      for (const Use& use : layout_.sections[at]) {
        if (started == config_.prefetch) return;
        if (layout_.units[use.unit].*begin != at) continue;
        if (states_[use.unit].at == At::kSharded) Gather(use.unit);
        ++started;
      }
    }
  }

  void GradientsCome(Use& use, bool reduces) {
    if (use.numbers == 0) return;
    if (config_.stage > 1 && !std::exchange(use.counted, true))
      bytes_.Add(parameter_bytes_ * use.numbers);
    if ((states_[use.unit].awaited -= use.numbers) > 0) return;
    Free(use.unit);
    if (reduces) Reduce(use.unit);
  }

  void Reduce(size_t unit) {
    while (static_cast<int>(reducing_.size()) > config_.prefetch)
      FinishReduce();
    bytes_.Add(kFp32Bytes * layout_.units[unit].padded_numbers);
    reducing_.push_back(unit);
    for (std::vector<Use>& section : layout_.sections) {
      for (Use& use : section) {
        if (use.unit == unit && std::exchange(use.counted, false))
          bytes_.Add(-parameter_bytes_ * use.numbers);
      }
    }
  }

  void FinishReduce() {
    bytes_.Add(-kFp32Bytes * layout_.units[reducing_.front()].padded_numbers);
    reducing_.pop_front();
  }

  const ShardingConfig config_;
  const int ranks_;
  const int64_t parameter_bytes_;
  Layout layout_;
  std::vector<State> states_;    // by unit
  std::deque<size_t> reducing_;  // units, the oldest first
  UnshardedBytes bytes_;
};

void ReplayStep(Replay& replay, const ModelPlacement& placement,
                const LayerRange& all, int64_t micro_batches) {
  for (const Pass& pass : placement.passes) {
    if (!pass.backward) {
      replay.Forward(pass.layers, /*takes_turns=*/true);
      continue;
    }
    replay.Backward(pass.layers, /*reduces=*/false);
    if (pass.completes) replay.Complete(pass.layers);
  }
  if (!placement.passes.empty())
    return replay.Finish(/*updates=*/true, /*takes_turns=*/true);
  for (int64_t i = 0; i < micro_batches; ++i) {
    const bool last = i + 1 == micro_batches;
    replay.Forward(all, /*takes_turns=*/false);
    replay.Backward(all,
                    last || placement.sharding.config.reduce_every_micro_batch);
    replay.Finish(/*updates=*/last, /*takes_turns=*/false);
  }
}

}  // namespace

int64_t ComputeUnsharded(const ModelSpec& model,
                         const ModelPlacement& placement,
                         int64_t micro_batches) {
  if (placement.sharding.config.stage == 0) return 0;
  Replay replay(LayoutBuilder(model, placement).Build(), placement.sharding);
  // What one step has gathered ahead may be there in the next one.
  for (int step = 0; step < 2; ++step)
    ReplayStep(replay, placement, {0, model.layers.size()}, micro_batches);
  return replay.peak();
}

}  // namespace rankwise
