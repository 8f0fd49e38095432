// Everything that the report's page draws, as one JSON object. Places, names
// and units are the page's own: page/*.js reads it, nothing else should.

#ifndef ANALYSIS_REPORT_REPORT_DATA_H_
#define ANALYSIS_REPORT_REPORT_DATA_H_

#include "analysis/answer/answer.h"
#include "nlohmann/json.hpp"

namespace rankwise {

// Seconds, bytes and shares of 1, as in the answer. Long loss curves are
// thinned to every k-th step. Numbers that are not finite become null when
// written.
nlohmann::json ReportData(const Answer& answer);

}  // namespace rankwise

#endif  // ANALYSIS_REPORT_REPORT_DATA_H_
