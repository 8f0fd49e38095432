#include "analysis/rate.h"

namespace rankwise {

ExampleUnit UnitOf(const RunRecord& run) {
  return {run.example, run.tokens_per_example};
}

RateColumn::RateColumn(absl::Span<const Cell> cells) {
  for (const Cell& cell : cells) {
    const std::string name = UnitOf(cell.run).RateName();
    if (name_.empty()) name_ = name;
    if (name_ != name) name_ = ExampleUnit().RateName();
  }
  if (name_.empty()) name_ = ExampleUnit().RateName();
}

double RateColumn::Of(const Cell& cell, double examples_per_second) const {
  const ExampleUnit unit = UnitOf(cell.run);
  return unit.RateName() == name_ ? unit.Rate(examples_per_second)
                                  : examples_per_second;
}

}  // namespace rankwise
