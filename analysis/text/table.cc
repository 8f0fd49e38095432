#include "analysis/text/table.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "analysis/text/text_table.h"
#include "records/text.h"

namespace rankwise {
namespace {

// Prefixes "'" to a field that a spreadsheet would read as a formula.
std::string Harmless(const std::string& field) {
  const bool is_formula = field.find_first_of("=+@\t\r") == 0;
  return CsvField(is_formula ? "'" + field : field);
}

}  // namespace

std::string DigitsText(double value) {
  if (!std::isfinite(value)) return "-";
  if (value == 0) return "0";
  const int magnitude =
      static_cast<int>(std::floor(std::log10(std::abs(value))));
  return FixedText(value, std::clamp(2 - magnitude, 0, 12));
}

std::string FixedText(double value, int decimals) {
  return std::isfinite(value) ? absl::StrFormat("%.*f", decimals, value) : "-";
}

std::string MegabytesText(double bytes) {
  return absl::StrFormat("%.0f MB", bytes / 1e6);
}

std::string IntervalText(const Interval& interval,
                         const std::function<std::string(double)>& show) {
  if (std::isnan(interval.low) || std::isnan(interval.high)) return "-";
  return absl::StrCat("[", show(interval.low), ", ", show(interval.high), "]");
}

std::string IntervalClause(const Interval& interval,
                           const std::function<std::string(double)>& show) {
  if (std::isnan(interval.low)) return "";
  return absl::StrCat(", 95 % interval ", IntervalText(interval, show));
}

Figure Word(absl::string_view text) {
  return {std::string(text), {std::string(text)}};
}

Figure Whole(int64_t count) { return Word(absl::StrCat(count)); }

Figure Number(double value, std::string text) {
  return {std::move(text), {CsvNumber(value)}};
}

Figure Fixed(double value, int decimals, double scale) {
  return Number(value, FixedText(scale * value, decimals));
}

Figure Digits(double value, double scale) {
  return Number(value, DigitsText(scale * value));
}

Figure Share(double share) { return Number(share, PercentText(share)); }

Figure SignedShare(double share) {
  return Number(share, SignedPercentText(share));
}

Figure Milliseconds(double value) {
  return Number(value, MillisecondsColumn(value));
}

Figure Megabytes(double bytes) {
  if (bytes == 0) return {"-", {""}};
  return Fixed(bytes, 0, 1e-6);
}

Figure Ends(const Interval& interval,
            const std::function<std::string(double)>& show) {
  return {IntervalText(interval, show),
          {CsvNumber(interval.low), CsvNumber(interval.high)}};
}

void Table::Add(std::string header, std::string names, Figure figure, int flags,
                std::optional<std::string> silent) {
  if (rows.size() == 1) {
    columns.push_back(
        {std::move(header), std::move(names), flags, std::move(silent)});
  }
  rows.back().push_back(std::move(figure));
}

bool Table::Shows(size_t column, ColumnFlags flag) const {
  if (columns[column].flags & flag) return false;
  for (size_t row = 0; row < rows.size(); ++row) {
    if (flag == kNotOnTerminal && hidden_rows.contains(row)) continue;
    if (rows[row][column].text != columns[column].silent) return true;
  }
  return false;
}

std::string TableText(const Table& table) {
  std::vector<size_t> shown;
  std::vector<std::string> header;
  size_t left = 0;
  for (size_t i = 0; i < table.columns.size(); ++i) {
    if (!table.Shows(i, kNotOnTerminal)) continue;
    shown.push_back(i);
    header.push_back(table.columns[i].header);
    const bool leads = left + 1 == header.size();
    if (leads && table.columns[i].flags & kLeft) ++left;
  }
  TextTable text(std::move(header), left);
  for (size_t row = 0; row < table.rows.size(); ++row) {
    if (table.hidden_rows.contains(row)) continue;
    std::vector<std::string> cells;
    for (const size_t i : shown) cells.push_back(table.rows[row][i].text);
    text.AddRow(std::move(cells));
  }
  return text.ToString();
}

std::string TerminalText(const Table& table) {
  const bool is_hidden = table.rows.size() == table.hidden_rows.size();
  if (is_hidden || !table.on_terminal) return "";
  return absl::StrCat(table.caption, table.caption.empty() ? "" : "\n", "\n",
                      TableText(table), table.notes, "\n");
}

std::string TableCsv(const Table& table) {
  std::string csv = absl::StrJoin(
      table.columns, ",", [](std::string* out, const Table::Column& column) {
        absl::StrAppend(out, column.names);
      });
  for (const std::vector<Figure>& row : table.rows) {
    std::vector<std::string> fields;
    for (const Figure& figure : row) {
      for (const std::string& field : figure.fields)
        fields.push_back(Harmless(field));
    }
    absl::StrAppend(&csv, "\n", absl::StrJoin(fields, ","));
  }
  return csv + "\n";
}

}  // namespace rankwise
