// What the report draws straight from records: losses over steps, and a step of
// each pipeline over time.

#ifndef ANALYSIS_ANSWER_PICTURES_H_
#define ANALYSIS_ANSWER_PICTURES_H_

#include <vector>

#include "absl/types/span.h"
#include "analysis/answer/answer.h"
#include "analysis/cell.h"
#include "analysis/run_trace.h"

namespace rankwise {

// One per cell that trains (not of ablations), from its first repetition.
std::vector<LossCurve> LossCurves(absl::Span<const Cell> cells,
                                  absl::Span<const RunTrace> runs);

// One per cell with timeline records, from its last repetition that has them:
// the first replica's ranks.
std::vector<TimelinePicture> TimelinePictures(absl::Span<const Cell> cells,
                                              absl::Span<const RunTrace> runs);

}  // namespace rankwise

#endif  // ANALYSIS_ANSWER_PICTURES_H_
