#include "analysis/text/text_table.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <utility>

#include "absl/strings/str_format.h"

namespace rankwise {

std::string PercentText(double share) {
  return std::isnan(share) ? "-" : absl::StrFormat("%.1f %%", 100 * share);
}

std::string SignedPercentText(double share) {
  return std::isnan(share) ? "-" : absl::StrFormat("%+.1f %%", 100 * share);
}

std::string MillisecondsText(double seconds) {
  if (std::isnan(seconds)) return "-";
  const double milliseconds = 1e3 * seconds;
  // %.3g would print 1234 as 1.23e+03.
  return absl::StrFormat(std::abs(milliseconds) < 999.5 ? "%.3g" : "%.0f",
                         milliseconds);
}

std::string MillisecondsColumn(double seconds) {
  return std::isnan(seconds) ? "-" : absl::StrFormat("%.2f", 1e3 * seconds);
}

std::string PValueText(double p) {
  if (std::isnan(p)) return "-";
  return p < 0.001 ? "<0.001" : absl::StrFormat("%.3f", p);
}

std::string CsvNumber(double value) {
  return std::isfinite(value) ? absl::StrFormat("%.17g", value) : "";
}

TextTable::TextTable(std::vector<std::string> header, size_t left_columns)
    : left_columns_(left_columns) {
  rows_.push_back(std::move(header));
}

void TextTable::AddRow(std::vector<std::string> row) {
  assert(row.size() == rows_[0].size());
  rows_.push_back(std::move(row));
}

std::string TextTable::ToString() const {
  std::vector<size_t> widths(rows_[0].size(), 0);
  for (const auto& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], row[i].size());
    }
  }
  std::string text;
  for (const auto& row : rows_) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string padding(widths[i] - row[i].size(), ' ');
      if (i > 0) line += "  ";
      line += i < left_columns_ ? row[i] + padding : padding + row[i];
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
    if (&row == &rows_[0]) text += std::string(line.size(), '-') + "\n";
  }
  return text;
}

}  // namespace rankwise
