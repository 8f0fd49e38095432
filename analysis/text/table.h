// Tables, each described once: a terminal, a page and a CSV file show the same
// figures, to the last digit.
#ifndef RANKWISE_ANALYSIS_TEXT_TABLE_H_
#define RANKWISE_ANALYSIS_TEXT_TABLE_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "analysis/stats/statistics.h"

namespace rankwise {

// Three significant digits without an exponent: "0.0123", "12.3", "1234".
// Like FixedText, "-" for a number that is not finite.
std::string DigitsText(double value);
std::string FixedText(double value, int decimals);  // "0.50" with 2 decimals
std::string MegabytesText(double bytes);            // "193 MB"
// "[0.90, 1.79]", each end as `show` writes it; "-" without an interval.
std::string IntervalText(const Interval& interval,
                         const std::function<std::string(double)>& show);
// ", 95 % interval [0.90, 1.79]"; "" without an interval.
std::string IntervalClause(const Interval& interval,
                           const std::function<std::string(double)>& show);

// An entry of a table: its text for people, and its fields in a CSV file, of
// which an interval has two.
struct Figure {
  std::string text = {};
  std::vector<std::string> fields = {};
};

Figure Word(absl::string_view text);  // which is also the field
Figure Whole(int64_t count);
// The field is the number itself, with all of its digits; empty if it is not
// finite.
Figure Number(double value, std::string text);
Figure Fixed(double value, int decimals, double scale = 1);
Figure Digits(double value, double scale = 1);
Figure Share(double share);         // "97.1 %"
Figure SignedShare(double share);   // "+3.2 %"
Figure Milliseconds(double value);  // "12.30", of seconds
Figure Megabytes(double bytes);     // "193"; 0 is not known
Figure Ends(const Interval& interval,
            const std::function<std::string(double)>& show);

// Flags of a column. 0: right-aligned, on terminals, on pages and in files.
enum ColumnFlags {
  kLeft = 1,
  kWrapped = 2,  // long texts, left
  kNotOnPage = 4,
  kNotOnTerminal = 8,
  kInFile = kNotOnPage | kNotOnTerminal,  // CSV files only
};

struct Table {
  std::string id = {};       // also the name of its CSV file: "scaling-table"
  std::string title = {};    // on a page
  std::string caption = {};  // above it, without a newline at its end
  std::string notes = {};    // lines below it
  bool on_terminal = true;

  // Begins a row. All rows add the same columns in the same order.
  void AddRow() { rows.emplace_back(); }

  // Terminals leave out the last row.
  void HideLastRow() { hidden_rows.insert(rows.size() - 1); }

  // `names`: the CSV names of the figure's fields, such as "low,high".
  // Terminals and pages hide the column if every row has the text `silent`.
  void Add(std::string header, std::string names, Figure figure, int flags = 0,
           std::optional<std::string> silent = std::nullopt);

  // Whether terminals (`flag` is kNotOnTerminal) or pages (kNotOnPage) show the
  // column.
  bool Shows(size_t column, ColumnFlags flag) const;

  struct Column {
    std::string header = {}, names = {};
    int flags = 0;
    std::optional<std::string> silent = {};
  };
  std::vector<Column> columns = {};
  std::vector<std::vector<Figure>> rows = {};
  std::set<size_t> hidden_rows = {};  // on terminals
};

// Header, a rule and the rows, each line closed by a newline.
std::string TableText(const Table& table);

// The table with its caption and notes, above an empty line; "" without rows
// to show, and for one that is not on a terminal.
std::string TerminalText(const Table& table);

// A header and a line per row, fields quoted as RFC 4180 says.
std::string TableCsv(const Table& table);

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_TEXT_TABLE_H_
