// The answer's tables, in parts: see TablesOf.
#ifndef RANKWISE_ANALYSIS_ANSWER_TABLES_H_
#define RANKWISE_ANALYSIS_ANSWER_TABLES_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "analysis/answer/answer.h"
#include "analysis/compare/record_set.h"
#include "analysis/runs/cell.h"
#include "analysis/text/table.h"

namespace rankwise {

// Gives each cell of the answer a unique label.
class Labels {
 public:
  explicit Labels(absl::Span<const Cell> cells)
      : cells_(cells), labels_(CellLabels(cells)) {}

  // Cells that are not among the answer's get CellLabel.
  std::string Of(const Cell* cell) const {
    const bool is_among = cell >= cells_.begin() && cell < cells_.end();
    return is_among ? labels_[cell - cells_.begin()] : CellLabel(*cell);
  }

 private:
  const absl::Span<const Cell> cells_;
  const std::vector<std::string> labels_;
};

// Shows "32"; the file has all digits.
inline Figure Batch(double examples) {
  return Number(examples, BatchText(examples));
}

// "97.1", of a share of 1.
inline std::string PercentDigits(double share) {
  return FixedText(100 * share, 1);
}

// "tokens_per_second" for "tokens/s".
std::string RateName(absl::string_view unit);

// Rows are medians over repetitions. Ablations have no row.
Table LayoutTable(const Answer& answer);
std::vector<Table> PipelineTables(absl::Span<const Cell> cells);

std::vector<Table> ScalingTables(const Answer& answer);
std::vector<Table> LedgerTables(const Answer& answer);
std::vector<Table> CostTables(const Answer& answer);

// One per profile, in the answer's order.
std::vector<Table> LayerTables(const Answer& answer);

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_ANSWER_TABLES_H_
