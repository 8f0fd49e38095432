// Scaling efficiency between two cells of a study, or the reason why they are
// not comparable. Formulas and conditions: docs/metrics.md.
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
  kStrong,       // constant global batch
  kWeak,         // constant batch per rank
  kFixedMemory,  // constant peak memory of the fullest rank
};

// Returns "strong", "weak", "fixed_memory".
absl::string_view ScalingName(Scaling scaling);

// Relative difference below which two peak memories count as equal.
inline constexpr double kMemoryTolerance = 0.1;

struct ComparisonConfig {
  // Also compares cells whose ranks had more threads than cores: the user
  // requested them with --oversubscribe.
  bool allow_oversubscribed = false;
  // Returns the figure with a warning instead of an error. The quantity that
  // the way of scaling keeps constant must still be equal.
  bool force = false;
};

// Fails if the cells differ in more than the world size and its consequences
// under `scaling`, if one is an ablation, if ranks shared cores or a device or
// used several devices, or if the code changed. The message names the first
// reason and the command or flag that fixes it.
absl::Status CheckComparable(const Cell& base, const Cell& cell,
                             Scaling scaling,
                             const ComparisonConfig& config = {});

// Returns the base case for `cell` (docs/metrics.md, "Scaling"): the fastest
// comparable "single", or a faster one-rank cell of its own trainer; else the
// fastest comparable cell of its trainer's smallest world size, possibly `cell`
// itself. If none is comparable, returns the first "single", or else the first
// cell of its trainer, so that CheckComparable can give the reason. Never
// nullptr; NotFound if there is no candidate.
absl::StatusOr<const Cell*> FindBase(absl::Span<const Cell> cells,
                                     const Cell& cell, Scaling scaling);

// CheckComparable, and fails if a cell has fewer than 2 repetitions.
absl::Status CheckEfficiency(const Cell& base, const Cell& cell,
                             Scaling scaling,
                             const ComparisonConfig& config = {});

struct Efficiency {
  double speedup = 0;         // Cell::ExamplesPerSecond over the base's
  Interval speedup_interval;  // 95 %, by RatioOf
  double efficiency = 0;  // speedup over the ratio of world sizes; ideally 1
  Interval efficiency_interval;
  // Errors suppressed by ComparisonConfig::force, or "". Intervals of a cell
  // with one repetition are then NaN.
  std::string warning;
};

// Fails if CheckEfficiency does.
absl::StatusOr<Efficiency> CompareToBase(const Cell& base, const Cell& cell,
                                         Scaling scaling,
                                         const ComparisonConfig& config = {});

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_SCALING_EFFICIENCY_H_
