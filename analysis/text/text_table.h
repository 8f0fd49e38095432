// Figures and tables as text for a terminal.
#ifndef RANKWISE_ANALYSIS_TEXT_TEXT_TABLE_H_
#define RANKWISE_ANALYSIS_TEXT_TEXT_TABLE_H_

#include <string>
#include <vector>

namespace rankwise {

std::string PercentText(double share);        // "97.1 %"
std::string SignedPercentText(double share);  // "+3.2 %"

// Three significant digits in milliseconds, without unit: "12.3", "0.0123".
std::string MillisecondsText(double seconds);

// Two decimals in milliseconds, without unit, for a column: "12.30".
std::string MillisecondsColumn(double seconds);

// "0.032", "<0.001", "-" for NaN.
std::string PValueText(double p);

// All digits, for a CSV file; "" if the number is not finite.
std::string CsvNumber(double value);

// Columns are as wide as their widest cell and two spaces apart. The first
// `left_columns` columns are left-aligned, the others right-aligned.
class TextTable {
 public:
  TextTable(std::vector<std::string> header, size_t left_columns);

  // Must have as many cells as the header.
  void AddRow(std::vector<std::string> row);

  // Returns the header, a rule and the rows. Each line ends with a newline.
  std::string ToString() const;

 private:
  const size_t left_columns_;
  std::vector<std::vector<std::string>> rows_;  // the header first
};

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_TEXT_TEXT_TABLE_H_
