// The report as HTML text: the template of page/ with what it shows put in.

#ifndef ANALYSIS_REPORT_REPORT_PAGE_H_
#define ANALYSIS_REPORT_REPORT_PAGE_H_

#include <string>

#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace rankwise {

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

#endif  // ANALYSIS_REPORT_REPORT_PAGE_H_
