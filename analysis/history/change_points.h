// Where a sequence of measurements changes its level.
#ifndef RANKWISE_ANALYSIS_HISTORY_CHANGE_POINTS_H_
#define RANKWISE_ANALYSIS_HISTORY_CHANGE_POINTS_H_

#include <cstddef>
#include <vector>

#include "absl/types/span.h"

namespace rankwise {

// A level is only known from this many values.
inline constexpr size_t kLeastValuesOfLevel = 3;

struct ChangePoint {
  size_t at = 0;       // the first value of the new level
  double p_value = 1;  // corrected for the places where a change was looked for
};

// The places, in order, where the level of `values` changes; noise is taken to
// be normal, of one variance, and independent from value to value. Of values
// without a change, some place is found with a probability of at most `alpha`.
//
// Binary segmentation (Vostrikova 1981): the values are split where the two
// sides differ most by Student's two-sample t, without the value of either side
// that separates them most, so that an outlier makes no level; if its p, times
// the number of places (Bonferroni; Hawkins 1977, Worsley 1979), is below alpha
// / 2, and either side again. A change that is taken back later hides from a
// single split: where there is none, the stretch that differs most from all the
// other values is sought likewise (circular binary segmentation, Olshen et al.
// 2004).
std::vector<ChangePoint> FindChangePoints(absl::Span<const double> values,
                                          double alpha);

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_HISTORY_CHANGE_POINTS_H_
