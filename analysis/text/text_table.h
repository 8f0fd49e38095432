// Figures and tables as text for a terminal.
#ifndef RANKWISE_ANALYSIS_TEXT_TEXT_TABLE_H_
#define RANKWISE_ANALYSIS_TEXT_TEXT_TABLE_H_

#include <string>
#include <vector>

namespace rankwise {

std::string PercentText(double share);        // "97.1 %"
std::string SignedPercentText(double share);  // "+3.2 %"

// Three digits of a time in milliseconds, without the unit: "12.3", "0.0123".
std::string MillisecondsText(double seconds);

// The same with two decimals, for a column of them: "12.30".
std::string MillisecondsColumn(double seconds);

// "0.032", "<0.001", "-" for NaN.
std::string PValueText(double p);

// For a CSV file: all digits; "" for a number that is not finite.
std::string CsvNumber(double value);

// Columns are as wide as their widest cell and two spaces apart. The first
// `left_columns` are aligned left, the others, numbers, right.
class TextTable {
 public:
  TextTable(std::vector<std::string> header, size_t left_columns);

  // Must have as many cells as the header.
  void AddRow(std::vector<std::string> row);

  // Header, a rule, and the rows, each line closed by a newline.
  std::string ToString() const;

 private:
  const size_t left_columns_;
  std::vector<std::vector<std::string>> rows_;  // the header first
};

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_TEXT_TEXT_TABLE_H_
