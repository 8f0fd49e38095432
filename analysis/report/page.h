// A page as one self-contained HTML file, drawn by the scripts of page/ and
// Plotly: it opens offline in any browser, has a light and a dark theme, and
// can be printed.
#ifndef RANKWISE_ANALYSIS_REPORT_PAGE_H_
#define RANKWISE_ANALYSIS_REPORT_PAGE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "analysis/stats/statistics.h"
#include "analysis/text/table.h"
#include "nlohmann/json.hpp"

namespace rankwise {

struct PageConfig {
  std::string title;
  std::string plotly_js;  // path of plotly.min.js, which is inlined
  // Runs after the scripts that all pages share. Must read its data from the
  // element "report-data" and call report(true) or report(false) at the end.
  absl::string_view script;
};

// Returns [low, high], or null unless both ends are finite.
nlohmann::json IntervalData(const Interval& interval);

// Returns the argument of addTable in page/tables.js: {"id", "title",
// "caption", "notes", "columns": [{"head", "class"}], "rows": texts, "csv"}.
// Contains the columns that pages show; "csv" has all columns.
nlohmann::json TableData(const Table& table);

// Writes `path` atomically. Errors name the file that could not be read or
// written; InvalidArgument if plotly_js is not a script that can be inlined.
absl::Status WritePage(const PageConfig& config, const nlohmann::json& data,
                       const std::string& path);

// Returns `given` (--plotly_js) if it is not empty. Otherwise looks for
// plotly.min.js in `runfiles_dir` (RUNFILES_DIR, which Bazel sets for a program
// that is data of another, such as a test; may be nullptr), then in the
// runfiles of the program at `own_path`. NotFound says how to provide it.
absl::StatusOr<std::string> FindPlotly(const std::string& given,
                                       const std::string& own_path,
                                       const char* runfiles_dir);

// "&lt;b&gt;" for "<b>": safe as an element's text and in quoted attributes.
std::string HtmlEscaped(absl::string_view text);

// Returns one line of JSON that is safe inside a script element: it contains no
// "<", so it cannot end the element or open a comment. Invalid UTF-8 becomes
// U+FFFD.
std::string ScriptSafeJson(const nlohmann::json& data);

// Returns the HTML. `plotly` is the text of plotly.min.js; neither it nor
// `script` may contain "</script".
std::string PageText(absl::string_view title, const nlohmann::json& data,
                     absl::string_view plotly, absl::string_view script);

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_REPORT_PAGE_H_
