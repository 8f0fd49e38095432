#include "parallel/sharded/order/unit_passes.h"

#include <utility>

namespace rankwise {

UnitPasses::UnitPasses(Units& units, UnitLayout layout,
                       const UnitOrderConfig& config)
    : layout_(std::move(layout)),
      takes_turns_(config.interleave_micro_batches),
      order_(units, layout_.units.size(), config),
      awaited_(layout_.units.size()) {
  for (const UnitSize& unit : layout_.units)
    incomplete_.push_back(unit.numbers);
  for (const std::vector<UnitUse>& uses : layout_.sections) {
    std::vector<size_t> of_section;
    for (const UnitUse& use : uses) of_section.push_back(use.unit);
    order_.AddSection(std::move(of_section));
  }
}

void UnitPasses::RunMicroBatches(int64_t micro_batches, bool reduces_each) {
  for (int64_t i = 1; i <= micro_batches; ++i) {
    const bool last = i == micro_batches;
    Forward(All());
    Backward(All(), /*reduces=*/last || reduces_each);
    Finish(/*updates=*/last);
  }
}

void UnitPasses::RunPasses(const std::vector<SectionPass>& passes) {
  for (const SectionPass& pass : passes) {
    if (!pass.backward) {
      Forward(pass.sections);
      continue;
    }
    Backward(pass.sections, /*reduces=*/false);
    if (pass.completes) Complete(pass.sections);
  }
  Finish(/*updates=*/true);
}

void UnitPasses::Forward(const SectionRange& sections) {
  for (size_t section = sections.begin; section < sections.end; ++section) {
    order_.BeginForward(section);
    ComputeForward(section);
    order_.EndForward(section, /*trains=*/true);
  }
}

void UnitPasses::Backward(const SectionRange& sections, bool reduces) {
  for (size_t section = sections.end; section-- > sections.begin;) {
    const std::vector<UnitUse>& uses = layout_.sections[section];
    for (const UnitUse& use : uses) {
      if (order_.last_section(use.unit) == section)
        awaited_[use.unit] = layout_.units[use.unit].numbers;
    }
    order_.BeginBackward(section);
    ComputeBackward(section);
    for (size_t i = uses.size(); i-- > 0;) {
      const UnitUse& use = uses[i];
      if (use.numbers == 0) continue;
      GradientsDone(section, use);
      awaited_[use.unit] -= use.numbers;
      if (awaited_[use.unit] == 0) order_.FinishUnit(use.unit, reduces);
    }
  }
}

void UnitPasses::Complete(const SectionRange& sections) {
  for (size_t section = sections.begin; section < sections.end; ++section) {
    for (const UnitUse& use : layout_.sections[section]) {
      if (use.numbers == 0) continue;
      incomplete_[use.unit] -= use.numbers;
      const bool tied = layout_.tied.count(use.unit) > 0;
      if (incomplete_[use.unit] == 0 && !tied) order_.Reduce(use.unit);
    }
  }
}

void UnitPasses::Finish(bool updates) {
  if (takes_turns_) {
    // The engine reduces weights that are tied on one rank last.
    for (const size_t unit : layout_.tied) order_.Reduce(unit);
  } else {
    order_.EndBackward();
  }
  order_.EndStep(updates);
}

}  // namespace rankwise
