// The report's data on how the cells scale, and what it was lost to, as JSON.

#ifndef ANALYSIS_REPORT_SCALING_DATA_H_
#define ANALYSIS_REPORT_SCALING_DATA_H_

#include "analysis/answer/answer.h"
#include "nlohmann/json.hpp"

namespace rankwise {

// A row per cell and way of scaling; a refused one says why.
nlohmann::json RowsData(const Answer& answer);

// Series of points over ranks, with their laws drawn to twice the largest size.
nlohmann::json SeriesData(const Answer& answer);

nlohmann::json LedgersData(const Answer& answer);
nlohmann::json WaterfallsData(const Answer& answer);
nlohmann::json AblationsData(const Answer& answer);

}  // namespace rankwise

#endif  // ANALYSIS_REPORT_SCALING_DATA_H_
