// A table of text with aligned columns.

#ifndef ANALYSIS_TEXT_TABLE_H_
#define ANALYSIS_TEXT_TABLE_H_

#include <string>
#include <vector>

namespace rankwise {

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

#endif  // ANALYSIS_TEXT_TABLE_H_
