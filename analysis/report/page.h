// A page as one HTML file that needs nothing else: it opens offline, in any
// browser, in light and dark, and prints. The files of page/ and Plotly draw
// it.
#ifndef RANKWISE_ANALYSIS_REPORT_PAGE_H_
#define RANKWISE_ANALYSIS_REPORT_PAGE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace rankwise {

struct PageConfig {
  std::string title;
  std::string plotly_js;  // path of plotly.min.js, which is put inline
  // Runs after the scripts that all pages share. Reads the data from the
  // element "report-data" and ends with report(true) or report(false).
  absl::string_view script;
};

// Writes `path` whole or not at all. The error names the file.
absl::Status WritePage(const PageConfig& config, const nlohmann::json& data,
                       const std::string& path);

// plotly.min.js in the tree `runfiles_dir` of runfiles, which may be empty
// (that of a program that has this one among its data, such as a test), else in
// that of the program at `own_path`. The error says what to do.
absl::StatusOr<std::string> FindPlotly(const std::string& own_path,
                                       const std::string& runfiles_dir);

// "&lt;b&gt;" for "<b>": safe as an element's text and in quoted attributes.
std::string HtmlEscaped(absl::string_view text);

// One line of JSON that can stand inside a script element: without "<", so that
// nothing in it ends the element or opens a comment. Bytes that are not UTF-8
// become U+FFFD.
std::string ScriptSafeJson(const nlohmann::json& data);

// `plotly` is the text of plotly.min.js; neither it nor `script` may hold
// "</script".
std::string PageText(absl::string_view title, const nlohmann::json& data,
                     absl::string_view plotly, absl::string_view script);

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_REPORT_PAGE_H_
