#include "analysis/plan/units.h"

#include <cstdint>
#include <optional>
#include <utility>

namespace rankwise::plan {
namespace {

constexpr double kNotGathered = -1;

}  // namespace

UnitSections UnitSectionsOf(const Model& model, const Layout& layout,
                            const Engine& engine,
                            const std::vector<Stage>& stages,
                            const LayerWork& work) {
  UnitSections all;
  UnitLayout& units = all.layout;
  std::optional<size_t> embedding;
  const bool again = RunsStagesAgain(layout, engine);
  const auto add = [&](const Work& layer, std::vector<UnitUse> uses) {
    const double forward = layer.seconds.Forward();
    all.seconds.push_back(
        {forward, layer.seconds.Backward() - (again ? forward : 0)});
    units.sections.push_back(std::move(uses));
  };
  const auto add_with_unit = [&](const Work& layer,
                                 const ParameterShapes& shapes) {
    units.units.push_back(SizeOf(shapes, layout.dp));
    add(layer, {{units.units.size() - 1, units.units.back().numbers}});
  };
  for (const Stage& stage : stages) {
    const size_t begin = units.sections.size();
    if (stage.embedding) {
      embedding = units.units.size();
      add_with_unit(work.embedding, work.shapes.embedding);
    }
    for (int64_t i = 0; i < stage.blocks; ++i)
      add_with_unit(work.block, work.shapes.block);
    if (stage.norm) add_with_unit(work.norm, work.shapes.norm);
    if (stage.head) {
      if (!model.tied_head || CopiesTiedWeight(model, layout, stage)) {
        add_with_unit(work.head, work.shapes.head);
      } else if (embedding.has_value()) {
        add(work.head, {{*embedding}});
        units.tied.insert(*embedding);
      } else {
        add(work.head, {});
      }
    }
    all.stages.push_back({begin, units.sections.size()});
  }
  return all;
}

UnitOrderConfig UnitOrderOf(const Layout& layout) {
  return {.zero = layout.zero,
          .prefetch = 1,
          .interleave_micro_batches = !layout.is_data_parallel()};
}

TimedUnits::TimedUnits(UnitSections sections, std::vector<UnitSeconds> units,
                       const UnitOrderConfig& config,
                       double speed_during_communication)
    : UnitPasses(*this, std::move(sections.layout), config),
      seconds_(std::move(sections.seconds)),
      units_(std::move(units)),
      link_(speed_during_communication),
      gathered_(units_.size(), kNotGathered),
      reduced_(units_.size(), kNotGathered) {}

bool TimedUnits::Gathered(size_t unit) const {
  return gathered_[unit] != kNotGathered;
}

void TimedUnits::StartGather(size_t unit) {
  gathered_[unit] = link_.Start(units_[unit].gather);
}

void TimedUnits::FinishGather(size_t unit) { link_.WaitUntil(gathered_[unit]); }

void TimedUnits::Invalidate(size_t unit) {
  FinishGather(unit);
  gathered_[unit] = kNotGathered;
}

void TimedUnits::StartReduce(size_t unit) {
  reduced_[unit] = link_.Start(units_[unit].scatter);
}

}  // namespace rankwise::plan
