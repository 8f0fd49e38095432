#include "analysis/report/page.h"

#include <cerrno>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "records/replace_file.h"
#include "third_party/absl/status_macros.h"

namespace rankwise {

// The files of page/, embedded by the build.
extern const char kPageHtml[];    // with placeholders {{title}}, {{css}}, ...
extern const char kPageCss[];     // for {{css}}
extern const char kPageErrors[];  // for {{errors}}: script that runs first
extern const char kPageParts[];   // for {{parts}}: scripts of all pages

namespace {

namespace fs = std::filesystem;
using ::nlohmann::json;

// Reads plotly.min.js and checks that it is safe inside a page.
absl::StatusOr<std::string> ReadPlotly(const std::string& path) {
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(in)),
                         std::istreambuf_iterator<char>());
  if (!in || text.empty()) {
    return absl::ErrnoToStatus(
        errno == 0 ? EIO : errno,
        absl::StrCat("reading ", path,
                     ", which draws the page: expected plotly.min.js"));
  }
  if (!absl::StrContains(text, "Plotly") ||
      absl::StrContains(absl::AsciiStrToLower(text), "</script")) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": expected plotly.min.js of @plotly//:plotly_js"));
  }
  return text;
}

}  // namespace

absl::StatusOr<std::string> FindPlotly(const std::string& given,
                                       const std::string& own_path,
                                       const char* runfiles_dir) {
  if (!given.empty()) return given;
  const fs::path own_dir = own_path + ".runfiles";
  const fs::path file = "plotly/plotly.min.js";
  for (const fs::path& dir :
       {fs::path(runfiles_dir == nullptr ? "" : runfiles_dir), own_dir}) {
    std::error_code error;
    if (!dir.empty() && fs::is_regular_file(dir / file, error))
      return (dir / file).string();
  }
  return absl::NotFoundError(
      absl::StrCat((own_dir / file).string(),
                   ", which draws the page, does not exist: start ",
                   fs::path(own_path).filename().string(),
                   " with `./bazelw run`, or pass --plotly_js"));
}

std::string HtmlEscaped(absl::string_view text) {
  return absl::StrReplaceAll(text, {{"&", "&amp;"},
                                    {"<", "&lt;"},
                                    {">", "&gt;"},
                                    {"\"", "&quot;"},
                                    {"'", "&#39;"}});
}

std::string ScriptSafeJson(const json& data) {
  const std::string text =
      data.dump(-1, ' ', false, json::error_handler_t::replace);
  return absl::StrReplaceAll(text, {{"<", "\\u003c"}});
}

std::string PageText(absl::string_view title, const json& data,
                     absl::string_view plotly, absl::string_view script) {
  // One pass, so that placeholders in inserted text are not replaced.
  return absl::StrReplaceAll(kPageHtml, {{"{{title}}", HtmlEscaped(title)},
                                         {"{{css}}", kPageCss},
                                         {"{{data}}", ScriptSafeJson(data)},
                                         {"{{errors}}", kPageErrors},
                                         {"{{plotly}}", plotly},
                                         {"{{parts}}", kPageParts},
                                         {"{{js}}", script}});
}

json IntervalData(const Interval& interval) {
  if (!std::isfinite(interval.low) || !std::isfinite(interval.high)) {
    return nullptr;
  }
  return json::array({interval.low, interval.high});
}

json TableData(const Table& table) {
  std::vector<size_t> shown;
  json columns = json::array(), rows = json::array();
  for (size_t i = 0; i < table.columns.size(); ++i) {
    if (!table.Shows(i, kNotOnPage)) continue;
    const int flags = table.columns[i].flags;
    shown.push_back(i);
    columns.push_back({{"head", table.columns[i].header},
                       {"class", flags & kWrapped ? "long"
                                 : flags & kLeft  ? ""
                                                  : "number"}});
  }
  for (const std::vector<Figure>& row : table.rows) {
    json texts = json::array();
    for (const size_t i : shown) texts.push_back(row[i].text);
    rows.push_back(std::move(texts));
  }
  return {{"id", table.id},           {"title", table.title},
          {"caption", table.caption}, {"notes", table.notes},
          {"columns", columns},       {"rows", rows},
          {"csv", TableCsv(table)}};
}

absl::Status WritePage(const PageConfig& config, const json& data,
                       const std::string& path) {
  ASSIGN_OR_RETURN(const std::string plotly, ReadPlotly(config.plotly_js));
  return ReplaceFile(path, PageText(config.title, data, plotly, config.script));
}

}  // namespace rankwise
