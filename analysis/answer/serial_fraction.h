// Karp and Flatt's serial fractions of a series, and what they tell together.

#ifndef ANALYSIS_ANSWER_SERIAL_FRACTION_H_
#define ANALYSIS_ANSWER_SERIAL_FRACTION_H_

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "analysis/answer/answer.h"

namespace rankwise {

// Of the series' rows above the base's world size, in their order; none but
// under strong scaling, for which the metric is meant. `rows` have bases.
std::vector<SerialFraction> SerialFractionsOf(const ScalingSeries& series);

// "rises from 3.1 % on 2 ranks to 8.0 % on 8: ...": the smallest world size
// against the largest, where their intervals lie apart. "" for one world size,
// and without intervals.
std::string SerialTrend(absl::Span<const SerialFraction> fractions);

}  // namespace rankwise

#endif  // ANALYSIS_ANSWER_SERIAL_FRACTION_H_
