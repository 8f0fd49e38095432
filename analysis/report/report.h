// The study's answer as one HTML file that needs nothing else: it opens
// offline, in any browser, in light and dark, and prints.
#ifndef RANKWISE_ANALYSIS_REPORT_REPORT_H_
#define RANKWISE_ANALYSIS_REPORT_REPORT_H_

#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "analysis/answer/answer.h"
#include "analysis/report/page.h"
#include "nlohmann/json.hpp"

namespace rankwise {

struct ReportConfig {
  std::string title;      // "Scaling study, 2026-01-31"
  std::string plotly_js;  // path of plotly.min.js, which is put inline
  std::string command;    // that makes this report again; "" for none
};

// Writes `path` atomically. The error names the file.
absl::Status WriteReport(const Answer& answer, const ReportConfig& config,
                         const std::string& path);

// Everything that the page draws, as one JSON object. Places, names and units
// are the page's own: page/*.js reads it, nothing else should. Seconds, bytes
// and shares of 1, as in the answer. Long loss curves are thinned to every k-th
// step, Amdahl's law is drawn to twice the largest size. Numbers that are not
// finite become null when written.
nlohmann::json ReportData(const Answer& answer);

// A cell's place among `cells`, which the others refer to it by; null for null
// and for one that is not among them.
nlohmann::json CellIndex(absl::Span<const Cell> cells, const Cell* cell);

// Names, sizes, figures over the repetitions, caveats, and the memory of the
// fullest rank, or null if it was not recorded.
nlohmann::json CellsData(absl::Span<const Cell> cells);

// Machines, versions, commits, and the flags that all cells share.
nlohmann::json OriginData(absl::Span<const Cell> cells);

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_REPORT_REPORT_H_
