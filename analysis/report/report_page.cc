#include "analysis/report/report_page.h"

#include "absl/strings/str_replace.h"
#include "analysis/report/page_files.h"

namespace rankwise {

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

}  // namespace rankwise
