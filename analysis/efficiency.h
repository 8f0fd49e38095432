// Scaling efficiency between two cells of a study, or the reason why there is
// none. docs/metrics.md has the formulas and the refusals.

#ifndef ANALYSIS_EFFICIENCY_H_
#define ANALYSIS_EFFICIENCY_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "analysis/cell.h"
#include "analysis/statistics.h"

namespace rankwise {

enum class Scaling {
  kStrong,       // the global batch is held equal
  kWeak,         // the batch per rank is held equal
  kFixedMemory,  // the peak memory of the fullest rank is held equal
};

absl::string_view ScalingName(Scaling scaling);  // "strong", "weak"

// Fails, naming the first difference, where the two cells differ in more than
// the world size and what `scaling` says follows from it.
absl::Status CheckComparable(const Cell& base, const Cell& cell,
                             Scaling scaling);

// The base case for `cell`: a cell of the trainer "single" if there is one,
// else one of the smallest world size of the same trainer and schedule; among
// several the first that is comparable. It may be `cell` itself. Never null.
absl::StatusOr<const Cell*> FindBase(absl::Span<const Cell> cells,
                                     const Cell& cell, Scaling scaling);

struct Efficiency {
  double speedup = 0;  // median images/s over the base's
  Interval speedup_interval;
  double efficiency = 0;  // speedup over the ratio of world sizes; 1 is ideal
  Interval efficiency_interval;
};

// Fails where CheckComparable does, and where a cell has fewer than 2
// repetitions.
absl::StatusOr<Efficiency> CompareToBase(const Cell& base, const Cell& cell,
                                         Scaling scaling,
                                         const BootstrapConfig& config = {});

}  // namespace rankwise

#endif  // ANALYSIS_EFFICIENCY_H_
