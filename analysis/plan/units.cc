#include "analysis/plan/units.h"

#include <cstdint>
#include <optional>
#include <utility>

namespace rankwise::plan {
namespace {

constexpr double kNotGathered = -1;

// Rows are taken to divide evenly among the ranks.
std::vector<UnitSize> SizesOf(const std::vector<double>& parameters) {
  std::vector<UnitSize> sizes;
  for (const double numbers : parameters) {
    const auto whole = static_cast<int64_t>(numbers);
    sizes.push_back({.numbers = whole, .padded_numbers = whole});
  }
  return sizes;
}

}  // namespace

UnitSections UnitSectionsOf(const Model& model, const Layout& layout,
                            const Engine& engine,
                            const std::vector<Stage>& stages,
                            const LayerWork& work) {
  UnitSections all;
  std::optional<size_t> embedding;
  const bool again = RunsStagesAgain(layout, engine);
  const auto add = [&](const Work& layer, std::vector<size_t> units) {
    const double forward = layer.seconds.Forward();
    all.sections.push_back({forward,
                            layer.seconds.Backward() - (again ? forward : 0),
                            std::move(units)});
  };
  const auto add_with_unit = [&](const Work& layer, double parameters) {
    all.parameters.push_back(parameters);
    add(layer, {all.parameters.size() - 1});
  };
  for (const Stage& stage : stages) {
    const size_t begin = all.sections.size();
    if (stage.embedding) {
      embedding = all.parameters.size();
      add_with_unit(work.embedding, work.embedding.parameters);
    }
    for (int64_t i = 0; i < stage.blocks; ++i)
      add_with_unit(work.block, work.block.parameters);
    if (stage.norm) add_with_unit(work.norm, work.norm.parameters);
    if (stage.head) {
      if (!model.tied_head || CopiesTiedWeight(model, layout, stage)) {
        add_with_unit(work.head, TokenWeights(model, layout));
      } else if (embedding.has_value()) {
        add(work.head, {*embedding});
      } else {
        add(work.head, {});
      }
    }
    all.stages.push_back({begin, all.sections.size()});
  }
  return all;
}

UnitOrderConfig UnitOrderOf(const Layout& layout) {
  return {.zero = layout.zero,
          .prefetch = 1,
          .micro_batches_take_turns = !layout.is_data_parallel()};
}

UnitPasses::UnitPasses(std::vector<Section> sections, Units& units,
                       size_t count, const UnitOrderConfig& config)
    : sections_(std::move(sections)),
      count_(count),
      order_(units, count, config) {
  for (const Section& section : sections_) order_.AddSection(section.units);
}

void UnitPasses::Forward() { StageForward(All()); }

void UnitPasses::Backward(bool reduces) {
  RunBackward(All(), reduces);
  order_.EndBackward();
  order_.EndStep(/*updates=*/reduces);
}

void UnitPasses::StageForward(const SectionRange& stage) {
  for (size_t section = stage.begin; section < stage.end; ++section) {
    order_.BeginForward(section);
    Compute(sections_[section].forward);
    order_.EndForward(section, /*trains=*/true);
  }
}

void UnitPasses::StageBackward(const SectionRange& stage) {
  RunBackward(stage, /*reduces=*/false);
}

void UnitPasses::RunBackward(const SectionRange& range, bool reduces) {
  for (size_t section = range.end; section-- > range.begin;) {
    order_.BeginBackward(section);
    Compute(sections_[section].backward);
    for (const size_t unit : sections_[section].units) {
      if (order_.first_section(unit) != section) continue;
      GradientsDone(unit);
      order_.FinishUnit(unit, reduces);
    }
  }
}

void UnitPasses::CompleteStep(const SectionRange& stage) {
  for (size_t section = stage.begin; section < stage.end; ++section) {
    for (const size_t unit : sections_[section].units) {
      if (!IsTied(unit)) order_.Reduce(unit);
    }
  }
}

void UnitPasses::EndStep() {
  // The engine reduces weights that are tied on one rank after all others.
  for (size_t unit = 0; unit < count_; ++unit) {
    if (IsTied(unit)) order_.Reduce(unit);
  }
  order_.EndStep(/*updates=*/true);
}

TimedUnits::TimedUnits(std::vector<Section> sections,
                       std::vector<UnitSeconds> units,
                       const UnitOrderConfig& config,
                       double speed_during_communication)
    : UnitPasses(std::move(sections), *this, units.size(), config),
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

UnitMemory::UnitMemory(UnitSections units, const UnitOrderConfig& order,
                       const UnitBytesConfig& bytes)
    : UnitBytes(SizesOf(units.parameters), bytes),
      UnitPasses(std::move(units.sections), *this, units.parameters.size(),
                 order) {}

void UnitMemory::GradientsDone(size_t unit) {
  AddGradients(unit, /*section=*/0, size(unit).numbers);
}

}  // namespace rankwise::plan
