// How the cost of a collective grows with the number of ranks.

#ifndef ANALYSIS_COST_MODEL_GROWTH_H_
#define ANALYSIS_COST_MODEL_GROWTH_H_

#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "analysis/cost_model/cost_curve.h"

namespace rankwise {

// How alpha and beta of a collective grow with the number of ranks n: the
// shapes of Thakur, Rabenseifner and Gropp 2005, sections 3 and 4.
enum class Growth {
  kFlat,  // not at all: a message, or a fake backend
  kTree,  // alpha as ceil(log2 n), beta not
  kRing,  // alpha as n - 1, beta as (n - 1) / n
};

absl::string_view GrowthName(Growth growth);  // "flat", "tree", "ring"
std::optional<Growth> GrowthFromName(absl::string_view name);

// What alpha and beta are proportional to. Requires world_size > 1.
double AlphaGrowth(Growth growth, int64_t world_size);
double BetaGrowth(Growth growth, int64_t world_size);

// What the backend's usual algorithm does: flat for messages and for the
// backend "fake"; tree for broadcast, reduce and barrier; ring for the others.
Growth AssumedGrowth(absl::string_view collective, absl::string_view backend);

// The growth that takes each curve to the measured points of the next with the
// least sum of |log(predicted / measured)|; `assumed` where others are no
// better. Curves by world size, at least two.
Growth FitGrowth(absl::Span<const CostCurve> curves, Growth assumed);

}  // namespace rankwise

#endif  // ANALYSIS_COST_MODEL_GROWTH_H_
