// The report's data on what was predicted, and how right it was, as JSON.

#ifndef ANALYSIS_REPORT_PREDICTION_DATA_H_
#define ANALYSIS_REPORT_PREDICTION_DATA_H_

#include "analysis/answer/answer.h"
#include "nlohmann/json.hpp"

namespace rankwise {

nlohmann::json PredictionsData(const Answer& answer);

// Predictions beside the cells that they had not seen.
nlohmann::json ScoresData(const Answer& answer);

}  // namespace rankwise

#endif  // ANALYSIS_REPORT_PREDICTION_DATA_H_
