// Which cell is compared with which, and what comes of it.
#ifndef RANKWISE_ANALYSIS_ANSWER_SCALING_ROWS_H_
#define RANKWISE_ANALYSIS_ANSWER_SCALING_ROWS_H_

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "analysis/answer/answer.h"
#include "analysis/runs/cell.h"

namespace rankwise {

ComparisonConfig ComparisonOf(const AnswerConfig& config);

// One row per cell and way of scaling, base cases first. A cell that fits
// several ways of scaling is compared by the one whose base has the larger
// batch: a base of a smaller one was run to explain a loss, not to hide it.
// Ablations, and bases that nothing is compared with, have no row.
std::vector<ScalingRow> ScalingRows(absl::Span<const Cell> cells,
                                    const AnswerConfig& config);

// The rows that have an efficiency, by trainer and way of scaling, each with
// its base and the laws that fit. `rows` outlive the result.
std::vector<ScalingSeries> ScalingSeriesOf(absl::Span<const ScalingRow> rows,
                                           const AnswerConfig& config);

// Of the series' rows above the base's world size, in their order; none but
// under strong scaling, for which the metric is meant. `rows` have bases.
std::vector<SerialFraction> SerialFractionsOf(const ScalingSeries& series);

// "rises from 3.1 % on 2 ranks to 8.0 % on 8: ...": the smallest world size
// against the largest, where their intervals lie apart. "" for one world size,
// and without intervals.
std::string SerialTrend(absl::Span<const SerialFraction> fractions);

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_ANSWER_SCALING_ROWS_H_
