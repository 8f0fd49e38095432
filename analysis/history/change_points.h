// Change-point detection in a sequence of measurements.
#ifndef RANKWISE_ANALYSIS_HISTORY_CHANGE_POINTS_H_
#define RANKWISE_ANALYSIS_HISTORY_CHANGE_POINTS_H_

#include <cstddef>
#include <vector>

#include "absl/types/span.h"

namespace rankwise {

// minimum number of values of a level
inline constexpr size_t kLeastValuesOfLevel = 3;

struct ChangePoint {
  size_t at = 0;       // index of the first value of the new level
  double p_value = 1;  // corrected for the number of places searched
};

// Returns the places, in order, where the level of `values` changes. Assumes
// normal, independent noise of constant variance. In values without a change,
// the probability of returning any place is at most `alpha`.
//
// Binary segmentation (Vostrikova 1981): splits the values where the two sides
// differ most by Student's two-sample t, if its p, times the number of places
// (Bonferroni; Hawkins 1977, Worsley 1979), is below alpha; then splits
// each side. t leaves out the most extreme value of each side in the direction
// of the change, so that an outlier is not a level. A change that is reverted
// later can escape a single split, so without one the segment that differs most
// from all other values is tested in the same way (circular binary
// segmentation, Olshen et al. 2004). Both p are doubled for the two searches.
std::vector<ChangePoint> FindChangePoints(absl::Span<const double> values,
                                          double alpha);

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_HISTORY_CHANGE_POINTS_H_
