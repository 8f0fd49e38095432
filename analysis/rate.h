// In what rates are printed: tokens, images or examples a second.

#ifndef ANALYSIS_RATE_H_
#define ANALYSIS_RATE_H_

#include <string>

#include "absl/types/span.h"
#include "analysis/cell.h"
#include "records/example_unit.h"
#include "records/record.h"

namespace rankwise {

ExampleUnit UnitOf(const RunRecord& run);

// The unit of one table's rates: that of all its cells, or examples where they
// differ.
class RateColumn {
 public:
  explicit RateColumn(absl::Span<const Cell> cells);

  const std::string& name() const { return name_; }  // "tokens/s"
  double Of(const Cell& cell, double examples_per_second) const;

 private:
  std::string name_;
};

}  // namespace rankwise

#endif  // ANALYSIS_RATE_H_
