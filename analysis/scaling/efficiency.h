// Scaling efficiency between two cells of a study, or the reason why there is
// none. docs/metrics.md has the formulas and the refusals.
#ifndef RANKWISE_ANALYSIS_SCALING_EFFICIENCY_H_
#define RANKWISE_ANALYSIS_SCALING_EFFICIENCY_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "analysis/runs/cell.h"
#include "analysis/stats/statistics.h"

namespace rankwise {

enum class Scaling {
  kStrong,       // the global batch is held equal
  kWeak,         // the batch per rank is held equal
  kFixedMemory,  // the peak memory of the fullest rank is held equal
};

// "strong", "weak", "fixed_memory"
absl::string_view ScalingName(Scaling scaling);

// Peak memories that differ by less than this share of the base's are equal.
inline constexpr double kMemoryTolerance = 0.1;

struct ComparisonConfig {
  // Cells whose ranks had more threads than cores are compared too: whoever ran
  // them requested it (--oversubscribe).
  bool allow_oversubscribed = false;
  // Gives the figure in spite of what is wrong with it, and says so. What the
  // way of scaling holds equal must be equal all the same.
  bool force = false;
};

// Fails where the two cells differ in more than the world size and what
// `scaling` says follows from it, where one of them is an ablation, where ranks
// shared cores or a device, or a rank used several, and where the code changed.
// The message names the first reason, and the command or flag that fixes it.
absl::Status CheckComparable(const Cell& base, const Cell& cell,
                             Scaling scaling,
                             const ComparisonConfig& config = {});

// The base case for `cell` (docs/metrics.md, "Scaling"): the fastest "single"
// that fits, or a faster cell of its own trainer on one rank; else the fastest
// that fits of its trainer's smallest world size, which may be `cell` itself.
// Where none fits, the first "single", or else the first of its trainer, so
// that CheckComparable can say why. Never null; NotFound where there is none.
absl::StatusOr<const Cell*> FindBase(absl::Span<const Cell> cells,
                                     const Cell& cell, Scaling scaling);

// The same, and fails where a cell has fewer than 2 repetitions.
absl::Status CheckEfficiency(const Cell& base, const Cell& cell,
                             Scaling scaling,
                             const ComparisonConfig& config = {});

struct Efficiency {
  double speedup = 0;         // Cell::ExamplesPerSecond over the base's
  Interval speedup_interval;  // 95 %: see RatioOf
  double efficiency = 0;  // speedup over the ratio of world sizes; 1 is ideal
  Interval efficiency_interval;
  // What ComparisonConfig::force passed over; "" for nothing. The intervals of
  // a cell of one repetition are NaN then.
  std::string warning;
};

// Fails where CheckEfficiency does.
absl::StatusOr<Efficiency> CompareToBase(const Cell& base, const Cell& cell,
                                         Scaling scaling,
                                         const ComparisonConfig& config = {});

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_SCALING_EFFICIENCY_H_
