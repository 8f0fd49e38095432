#include "parallel/sharded/order/unit_order.h"

#include <utility>

namespace rankwise {

void UnitOrder::AddSection(std::vector<size_t> units) {
  const size_t section = sections_.size();
  for (const size_t unit : units) {
    Use& use = uses_[unit];
    if (use.sections++ == 0) use.first_section = section;
    use.last_section = section;
  }
  sections_.push_back(std::move(units));
}

void UnitOrder::Need(size_t unit) {
  if (!units_.Gathered(unit)) {
    ++uses_[unit].misses;
    units_.StartGather(unit);
  }
  units_.FinishGather(unit);
}

void UnitOrder::Prefetch(size_t section, int step) {
  const auto begin = step > 0 ? &Use::first_section : &Use::last_section;
  const auto end = static_cast<int64_t>(sections_.size());
  int started = 0;
  for (auto next = static_cast<int64_t>(section) + step;
       next >= 0 && next < end; next += step) {
    for (const size_t unit : sections_[static_cast<size_t>(next)]) {
      if (started == config_.prefetch) return;
      if (uses_[unit].*begin != static_cast<size_t>(next)) continue;
      if (!units_.Gathered(unit)) units_.StartGather(unit);
      ++started;
    }
  }
}

void UnitOrder::BeginForward(size_t section) {
  for (const size_t unit : sections_[section]) Need(unit);
  Prefetch(section, 1);
}

void UnitOrder::EndForward(size_t section, bool trains) {
  const bool backward_begins_here = trains && section + 1 == sections_.size() &&
                                    !config_.interleave_micro_batches;
  if (config_.zero < 3 || backward_begins_here) return;
  for (const size_t unit : sections_[section]) {
    if (uses_[unit].last_section == section) units_.Invalidate(unit);
  }
}

void UnitOrder::BeginBackward(size_t section) {
  for (const size_t unit : sections_[section]) Need(unit);
  Prefetch(section, -1);
}

void UnitOrder::FinishUnit(size_t unit, bool reduces) {
  if (config_.zero == 3) units_.Invalidate(unit);
  if (reduces) Reduce(unit);
}

void UnitOrder::EndBackward() {
  if (config_.zero == 3) InvalidateAll();
}

void UnitOrder::Reduce(size_t unit) {
  while (static_cast<int>(reducing_.size()) > config_.prefetch) {
    units_.FinishReduce(reducing_.front());
    reducing_.pop_front();
  }
  units_.StartReduce(unit);
  reducing_.push_back(unit);
}

void UnitOrder::EndStep(bool updates) {
  for (const size_t unit : reducing_) units_.FinishReduce(unit);
  reducing_.clear();
  if (updates) InvalidateAll();
}

void UnitOrder::InvalidateAll() {
  for (size_t unit = 0; unit < uses_.size(); ++unit) units_.Invalidate(unit);
}

int64_t UnitOrder::TakeMisses(size_t unit) {
  return std::exchange(uses_[unit].misses, 0);
}

}  // namespace rankwise
