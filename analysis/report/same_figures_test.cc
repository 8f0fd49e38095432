// The terminal, the report and its CSV files of one study show the same
// figures.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "analysis/answer/answer.h"
#include "analysis/report/answer_for_test.h"
#include "analysis/report/report.h"
#include "analysis/runs/made_layouts_for_test.h"
#include "analysis/runs/made_study_for_test.h"
#include "analysis/runs/run_trace.h"
#include "analysis/text/table.h"
#include "nlohmann/json.hpp"

namespace rankwise {
namespace {

using ::nlohmann::json;
using Row = std::vector<std::string>;

// Splits a line of a terminal's table into its columns, which two or more
// spaces separate. Only columns at the end may be empty.
Row Columns(const std::string& line) {
  Row columns;
  for (const absl::string_view part : absl::StrSplit(line, "  ")) {
    const absl::string_view text = absl::StripAsciiWhitespace(part);
    if (!text.empty()) columns.emplace_back(text);
  }
  return columns;
}

// Returns the tables in a terminal's text, each as a header and rows. A rule
// follows the header; an empty line, or one with at least two columns fewer
// than the header, ends the rows.
std::vector<std::vector<Row>> TablesIn(const std::string& text) {
  const std::vector<std::string> lines = absl::StrSplit(text, '\n');
  std::vector<std::vector<Row>> tables;
  for (size_t i = 1; i < lines.size(); ++i) {
    const bool is_rule = !lines[i].empty() &&
                         lines[i].find_first_not_of('-') == std::string::npos;
    if (!is_rule) continue;
    std::vector<Row>& table = tables.emplace_back();
    table.push_back(Columns(lines[i - 1]));
    for (size_t row = i + 1; row < lines.size() && !lines[row].empty(); ++row) {
      if (Columns(lines[row]).size() + 1 < table[0].size()) break;
      table.push_back(Columns(lines[row]));
    }
  }
  return tables;
}

std::string FolderOf(const std::string& name) {
  const std::string dir = testing::TempDir() + "/" + name;
  std::filesystem::remove_all(dir);
  std::filesystem::create_directory(dir);
  return dir;
}

// Writes the page and returns the data in it.
json PageData(const Answer& answer, const std::string& dir) {
  const std::string path = dir + "/report.html";
  const absl::Status written = WriteReport(
      answer, {"Study", "../plotly/plotly.min.js", "./bazelw run"}, path);
  EXPECT_TRUE(written.ok()) << written;
  std::stringstream page;
  page << std::ifstream(path, std::ios::binary).rdbuf();
  const std::string text = page.str();
  const std::string opening =
      "<script id=\"report-data\" type=\"application/json\">";
  const size_t start = text.find(opening) + opening.size();
  return json::parse(text.substr(start, text.find("</script>", start) - start));
}

// Returns the columns of a page's table by header. Columns with equal headers
// are concatenated.
std::map<std::string, Row> TextsOf(const json& table) {
  std::map<std::string, Row> texts;
  for (size_t i = 0; i < table["columns"].size(); ++i) {
    Row& column = texts[table["columns"][i]["head"]];
    for (const json& row : table["rows"]) column.push_back(row[i]);
  }
  return texts;
}

// Returns the number of figures in the terminal's `shared` columns if the
// page's columns of the same headers, `texts`, contain all rows in order;
// otherwise 0.
int FiguresOnPage(const std::vector<Row>& table,
                  const std::vector<size_t>& shared,
                  const std::map<std::string, Row>& texts, size_t rows) {
  size_t at = 0;
  int figures = 0;
  for (size_t row = 1; row < table.size(); ++row) {
    const auto is_at = [&](size_t place) {
      return absl::c_all_of(shared, [&](size_t i) {
        return i >= table[row].size() ||
               table[row][i] == texts.at(table[0][i])[place];
      });
    };
    while (at < rows && !is_at(at)) ++at;
    if (at++ == rows) return 0;
    figures += static_cast<int>(shared.size());
  }
  return figures;
}

// Expects the figures of each terminal table in the page's table that shares
// the most headers with it. Returns the number of figures.
int CompareTerminalWithPage(const std::string& text, const json& data) {
  int figures = 0;
  for (const std::vector<Row>& table : TablesIn(text)) {
    int best = 0;
    size_t most = 1;
    for (const json& on_page : data["tables"]) {
      const std::map<std::string, Row> texts = TextsOf(on_page);
      const size_t rows = on_page["rows"].size();
      std::vector<size_t> shared;
      for (size_t i = 0; i < table[0].size(); ++i) {
        const auto column = texts.find(table[0][i]);
        const bool is_twice =
            std::count(table[0].begin(), table[0].end(), table[0][i]) > 1;
        if (column == texts.end() || is_twice) continue;
        if (column->second.size() == rows) shared.push_back(i);
      }
      if (shared.size() < most) continue;
      const int same = FiguresOnPage(table, shared, texts, rows);
      best = shared.size() > most ? same : std::max(best, same);
      most = shared.size();
    }
    EXPECT_GT(best, 0) << absl::StrJoin(table[0], " | ");
    figures += best;
  }
  return figures;
}

// Returns the columns of a CSV file by name, with the quotes removed from
// quoted fields.
std::map<std::string, Row> FieldsOf(const std::string& csv) {
  std::map<std::string, Row> fields;
  std::vector<std::string> lines = absl::StrSplit(csv, '\n');
  const Row names = absl::StrSplit(lines[0], ',');
  for (size_t i = 1; i + 1 < lines.size(); ++i) {
    std::vector<std::string> row = {""};
    bool quoted = false;
    for (const char c : lines[i]) {
      if (c == '"') quoted = !quoted;
      if (c == ',' && !quoted) {
        row.emplace_back();
      } else if (c != '"') {
        row.back() += c;
      }
    }
    EXPECT_EQ(row.size(), names.size()) << lines[i];
    for (size_t name = 0; name < names.size(); ++name)
      fields[names[name]].push_back(row[name]);
  }
  return fields;
}

const json& TableNamed(const json& data, const std::string& id) {
  for (const json& table : data["tables"]) {
    if (table["id"] == id) return table;
  }
  ADD_FAILURE() << "no " << id;
  static const json none;
  return none;
}

// Expects the numbers of the CSV file, rounded, in the texts of the page.
void CompareFileWithPage(const json& data, const std::string& id,
                         const std::string& head, const std::string& name,
                         double scale, int decimals, const char* unit = "") {
  const json& table = TableNamed(data, id);
  const Row texts = TextsOf(table)[head];
  const Row fields = FieldsOf(table["csv"])[name];
  ASSERT_EQ(texts.size(), fields.size());
  ASSERT_FALSE(texts.empty());
  for (size_t i = 0; i < texts.size(); ++i) {
    if (texts[i] == "-") {
      EXPECT_EQ(fields[i], "");
      continue;
    }
    EXPECT_EQ(
        texts[i],
        absl::StrCat(FixedText(scale * std::stod(fields[i]), decimals), unit))
        << id << ", " << head;
  }
}

std::unique_ptr<Answer> AnswerOf(const std::string& dir) {
  auto runs = LoadRuns(dir);
  EXPECT_TRUE(runs.ok()) << runs.status();
  return Analyze(*std::move(runs), {});
}

TEST(SameFigures, OfLayoutsAndLedgers) {
  const std::string dir = FolderOf("layouts");
  ASSERT_TRUE(WriteLayoutStudy(dir, {.link_bytes_per_second = 1e9}).ok());
  const std::unique_ptr<Answer> answer = AnswerOf(dir);
  const json data = PageData(*answer, dir);
  EXPECT_GT(CompareTerminalWithPage(AnswerText(*answer), data), 100);
  CompareFileWithPage(data, "scaling-table", "efficiency", "efficiency", 100, 1,
                      " %");
  CompareFileWithPage(data, "scaling-table", "comm wait", "comm_wait_share",
                      100, 1, " %");
  CompareFileWithPage(data, "layout-table", "MB", "peak_bytes", 1e-6, 0);
  CompareFileWithPage(data, "layout-table", "dp", "exposed_dp_seconds", 1e3, 2);
  CompareFileWithPage(data, "ledger-table", "compute", "compute_seconds", 1e3,
                      2);
}

// Pipeline times and bubbles are medians over repetitions; the error compares
// two medians.
TEST(SameFigures, OfPipelines) {
  const std::string dir = FolderOf("pipelines");
  ASSERT_TRUE(WriteMadeStudy(dir, {.records = 2000}).ok());
  const std::unique_ptr<Answer> answer = AnswerOf(dir);
  const json data = PageData(*answer, dir);
  EXPECT_GT(CompareTerminalWithPage(AnswerText(*answer), data), 50);
  CompareFileWithPage(data, "pipeline-table", "wall bubble", "wall_bubble", 100,
                      1, " %");
  CompareFileWithPage(data, "pipeline-table", "schedule ms", "schedule_seconds",
                      1e3, 2);
}

TEST(SameFigures, OfLossesPredictionsAndLearning) {
  const std::unique_ptr<Answer> answer = FullAnswer("");
  const json data = PageData(*answer, FolderOf("full"));
  for (const Table& table : TablesOf(*answer)) {
    for (const char* id : {"waterfall-table", "prediction-table",
                           "learning-table", "staleness-table"}) {
      if (table.id != id) continue;
      EXPECT_GT(CompareTerminalWithPage(TerminalText(table), data), 5) << id;
    }
  }
  CompareFileWithPage(data, "waterfall-table", "points lost",
                      "efficiency_points", 100, 1);
  CompareFileWithPage(data, "waterfall-table", "ms", "seconds", 1e3, 2);
  CompareFileWithPage(data, "prediction-table", "exposed comm ms",
                      "exposed_comm_seconds", 1e3, 2);
  CompareFileWithPage(data, "prediction-table", "images/s", "images_per_second",
                      1, 0);
  CompareFileWithPage(data, "learning-table", "seconds", "seconds", 1, 2);
  CompareFileWithPage(data, "staleness-table", "0", "share_of_0", 100, 1, " %");
}

}  // namespace
}  // namespace rankwise
