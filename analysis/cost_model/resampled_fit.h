// A robust fit and its intervals, which cover both reasons why another
// measurement would have given another fit: the calls of each size that
// happened to be timed, and how far sizes lie from any line.

#ifndef ANALYSIS_COST_MODEL_RESAMPLED_FIT_H_
#define ANALYSIS_COST_MODEL_RESAMPLED_FIT_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "analysis/cost_model/robust_fit.h"
#include "analysis/stats/statistics.h"

namespace rankwise {

struct FittedPiece {
  Terms coefficients = {};
  std::array<Interval, kMaxTerms> intervals = {};  // 95 %
};

struct ResampledFit {
  std::vector<FittedPiece> pieces;
  double excess_spread = 0;  // relative, of rows about their piece's model
};

// Fits `terms` coefficients to each piece of `rows`, which begins at `starts`.
// redrawn[i] holds, for row i, the seconds of each resample of its calls;
// equally many for all rows. Every resample of the fit takes one of them, moved
// by a draw of the rows' excess spread (ExcessSpread), whose own uncertainty is
// drawn too: a scaled inverse chi-squared with rows - coefficients degrees of
// freedom. Intervals are percentiles (Efron 1979).
ResampledFit FitResampled(absl::Span<const Observation> rows,
                          absl::Span<const absl::Span<const double>> redrawn,
                          absl::Span<const size_t> starts, int terms,
                          uint64_t seed);

}  // namespace rankwise

#endif  // ANALYSIS_COST_MODEL_RESAMPLED_FIT_H_
