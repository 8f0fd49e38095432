// Writes the answer of a study as one self-contained HTML file: see page.h.
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
  std::string plotly_js;  // path of plotly.min.js, which is inlined
  std::string command;    // shown as the command that makes the report; or ""
};

// Writes `path` atomically. The error names the file.
absl::Status WriteReport(const Answer& answer, const ReportConfig& config,
                         const std::string& path);

// Returns all data of the page as one JSON object, for page/*.js only: its keys
// are not a stable format. Units as in the answer: seconds, bytes and shares of
// 1. Loss curves of more than 2000 points are thinned to every k-th point and
// the last one; Amdahl's law extends to twice the largest world size. Numbers
// that are not finite become null when written.
nlohmann::json ReportData(const Answer& answer);

// Returns the index of `cell` in `cells`, by which other data refer to it; null
// if `cell` is nullptr or does not point into `cells`.
nlohmann::json CellIndex(absl::Span<const Cell> cells, const Cell* cell);

// Returns the cells' names, sizes, figures over repetitions, caveats, and
// memory of the fullest rank (null if not recorded).
nlohmann::json CellsData(absl::Span<const Cell> cells);

// Returns the machines with their devices, versions, code versions, threads per
// rank, and the flags with equal values in all cells.
nlohmann::json OriginData(absl::Span<const Cell> cells);

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_REPORT_REPORT_H_
