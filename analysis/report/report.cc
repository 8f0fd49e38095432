#include "analysis/report/report.h"

#include <cerrno>
#include <fstream>
#include <iterator>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "records/replace_file.h"
#include "third_party/absl/status_macros.h"

namespace rankwise {

// The files of page/, as the build puts them into the binary.
extern const char kPageHtml[];    // with {{title}}, {{css}}, {{data}}, ...
extern const char kPageCss[];     // goes to {{css}}
extern const char kPageErrors[];  // to {{errors}}: runs before all else
extern const char kPageJs[];      // to {{js}}: every other script

namespace {

// The text of a script that can stand inside a page.
absl::StatusOr<std::string> ReadPlotly(const std::string& path) {
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(in)),
                         std::istreambuf_iterator<char>());
  if (!in || text.empty()) {
    return absl::ErrnoToStatus(
        errno == 0 ? EIO : errno,
        absl::StrCat("reading ", path,
                     ", which draws the report: it should be plotly.min.js"));
  }
  if (!absl::StrContains(text, "Plotly") ||
      absl::StrContains(absl::AsciiStrToLower(text), "</script")) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": expected plotly.min.js, as @plotly//:plotly_js brings it"));
  }
  return text;
}

}  // namespace

std::string HtmlEscaped(absl::string_view text) {
  return absl::StrReplaceAll(text, {{"&", "&amp;"},
                                    {"<", "&lt;"},
                                    {">", "&gt;"},
                                    {"\"", "&quot;"},
                                    {"'", "&#39;"}});
}

std::string ScriptSafeJson(const nlohmann::json& data) {
  const std::string text =
      data.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return absl::StrReplaceAll(text, {{"<", "\\u003c"}});
}

std::string ReportPage(absl::string_view title, const nlohmann::json& data,
                       absl::string_view plotly) {
  // In one pass, so that what is put in is not searched in its turn.
  return absl::StrReplaceAll(kPageHtml, {{"{{title}}", HtmlEscaped(title)},
                                         {"{{css}}", kPageCss},
                                         {"{{data}}", ScriptSafeJson(data)},
                                         {"{{errors}}", kPageErrors},
                                         {"{{plotly}}", plotly},
                                         {"{{js}}", kPageJs}});
}

absl::Status WriteReport(const Answer& answer, const ReportConfig& config,
                         const std::string& path) {
  ASSIGN_OR_RETURN(const std::string plotly, ReadPlotly(config.plotly_js));
  nlohmann::json data = ReportData(answer);
  data["command"] = config.command;
  return ReplaceFile(path, ReportPage(config.title, data, plotly));
}

}  // namespace rankwise
