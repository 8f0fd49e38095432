// The study's answer as one HTML file that needs nothing else: it opens
// offline, in any browser, in light and dark, and prints.
#ifndef RANKWISE_ANALYSIS_REPORT_REPORT_H_
#define RANKWISE_ANALYSIS_REPORT_REPORT_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "analysis/answer/answer.h"
#include "nlohmann/json.hpp"

namespace rankwise {

struct ReportConfig {
  std::string title;      // "Scaling study, 2026-01-31"
  std::string plotly_js;  // path of plotly.min.js, which is put inline
  std::string command;    // that makes this report again; "" for none
};

// Writes `path` whole or not at all. The error names the file.
absl::Status WriteReport(const Answer& answer, const ReportConfig& config,
                         const std::string& path);

// "&lt;b&gt;" for "<b>": safe as an element's text and in quoted attributes.
std::string HtmlEscaped(absl::string_view text);

// One line of JSON that can stand inside a script element: without "<", so that
// nothing in it ends the element or opens a comment. Bytes that are not UTF-8
// become U+FFFD.
std::string ScriptSafeJson(const nlohmann::json& data);

// `plotly` is the text of plotly.min.js and must not hold "</script".
std::string ReportPage(absl::string_view title, const nlohmann::json& data,
                       absl::string_view plotly);

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_REPORT_REPORT_H_
