// Tables that terminals, pages and CSV files show from one description, so that
// their figures are equal to the last digit.
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
// Like FixedText, "-" if the number is not finite.
std::string DigitsText(double value);
std::string FixedText(double value, int decimals);  // "0.50" with 2 decimals
std::string MegabytesText(double bytes);            // "193 MB"
// "[0.90, 1.79]", each end formatted by `show`; "-" if an end is NaN.
std::string IntervalText(const Interval& interval,
                         const std::function<std::string(double)>& show);
// ", 95 % interval [0.90, 1.79]"; "" if the lower end is NaN.
std::string IntervalClause(const Interval& interval,
                           const std::function<std::string(double)>& show);

// An entry of a table: its text, and its fields in a CSV file. An interval has
// two fields.
struct Figure {
  std::string text = {};
  std::vector<std::string> fields = {};
};

Figure Word(absl::string_view text);  // the field is the same text
Figure Whole(int64_t count);
// The field has all digits of `value`, which `scale` does not change; it is
// empty if `value` is not finite.
Figure Number(double value, std::string text);
Figure Fixed(double value, int decimals, double scale = 1);
Figure Digits(double value, double scale = 1);
Figure Share(double share);         // "97.1 %"
Figure SignedShare(double share);   // "+3.2 %"
Figure Milliseconds(double value);  // "12.30" for 0.0123 seconds
Figure Megabytes(double bytes);     // "193"; "-" if 0, which means unknown
Figure Ends(const Interval& interval,
            const std::function<std::string(double)>& show);

// Flags of a column. Without flags, it is right-aligned and shown on terminals,
// on pages and in CSV files.
enum ColumnFlags {
  kLeft = 1,     // left-aligned
  kWrapped = 2,  // long texts, left-aligned and wrapped on pages
  kNotOnPage = 4,
  kNotOnTerminal = 8,
  kInFile = kNotOnPage | kNotOnTerminal,  // CSV files only
};

struct Table {
  std::string id = {};       // "scaling-table"; also names the CSV file
  std::string title = {};    // shown on pages only
  std::string caption = {};  // above the table, without a final newline
  std::string notes = {};    // lines below the table
  bool on_terminal = true;

  // Begins a row. All rows add the same columns in the same order.
  void AddRow() { rows.emplace_back(); }

  // Hides the last row on terminals.
  void HideLastRow() { hidden_rows.insert(rows.size() - 1); }

  // Adds an entry to the last row. `names` are the CSV names of its fields,
  // such as "low,high". Terminals and pages hide the column if the text of
  // every row that they show is `silent`.
  void Add(std::string header, std::string names, Figure figure, int flags = 0,
           std::optional<std::string> silent = std::nullopt);

  // Whether the column is shown on terminals (`flag` is kNotOnTerminal) or on
  // pages (`flag` is kNotOnPage).
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

// Returns the columns and rows that terminals show, with a header and a rule.
// Each line ends with a newline.
std::string TableText(const Table& table);

// Returns the table for a terminal, with its caption, notes and an empty line;
// "" if on_terminal is false or no row is shown.
std::string TerminalText(const Table& table);

// Returns all columns and rows, with fields quoted as in RFC 4180 and a header
// line. Prefixes "'" to texts that a spreadsheet would read as a formula.
std::string TableCsv(const Table& table);

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_TEXT_TABLE_H_
