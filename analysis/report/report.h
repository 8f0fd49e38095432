// The study's answer as one HTML file that needs nothing else: it opens
// offline, in any browser, in light and dark, and prints.

#ifndef ANALYSIS_REPORT_REPORT_H_
#define ANALYSIS_REPORT_REPORT_H_

#include <string>

#include "absl/status/status.h"
#include "analysis/answer/answer.h"

namespace rankwise {

struct ReportConfig {
  std::string title;      // "Scaling study, 2026-01-31"
  std::string plotly_js;  // path of plotly.min.js, which is put inline
  std::string command;    // that makes this report again; "" for none
};

// Writes `path` whole or not at all. The error names the file.
absl::Status WriteReport(const Answer& answer, const ReportConfig& config,
                         const std::string& path);

}  // namespace rankwise

#endif  // ANALYSIS_REPORT_REPORT_H_
