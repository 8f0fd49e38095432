// Predictions, scores and recommendations as tables for a terminal.

#ifndef ANALYSIS_PREDICTION_PREDICTION_TEXT_H_
#define ANALYSIS_PREDICTION_PREDICTION_TEXT_H_

#include <string>

#include "absl/types/span.h"
#include "analysis/prediction/prediction.h"

namespace rankwise {

// A prediction and what its efficiency is against: one rank with the same batch
// per rank, or where the global batch is held equal, with all of that.
struct PredictedRow {
  Prediction prediction;
  double one_rank_examples_per_second = 0;  // 0: not known
};

// One line each, those beyond what was measured marked "*", and below every
// assumption once, with the layouts that it is made for.
std::string PredictionTable(absl::Span<const PredictedRow> rows);

// Every held-out point beside its prediction, the median error, the coverage
// and the median width of the intervals.
std::string ScoreTable(const Score& score);

// The reason, the `most` fastest candidates, and what was left out.
std::string RecommendationText(const Recommendation& recommendation,
                               size_t most = 10);

}  // namespace rankwise

#endif  // ANALYSIS_PREDICTION_PREDICTION_TEXT_H_
