// The tables of an answer, which TablesOf combines.
#ifndef RANKWISE_ANALYSIS_ANSWER_TABLES_H_
#define RANKWISE_ANALYSIS_ANSWER_TABLES_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "analysis/answer/answer.h"
#include "analysis/compare/record_set.h"
#include "analysis/ledger/ledger.h"
#include "analysis/prediction/prediction.h"
#include "analysis/runs/cell.h"
#include "analysis/text/table.h"

namespace rankwise {

// Gives each cell of the answer a unique label.
class Labels {
 public:
  explicit Labels(absl::Span<const Cell> cells)
      : cells_(cells), labels_(CellLabels(cells)) {}

  // Returns CellLabel for a cell that is not one of the answer's.
  std::string Of(const Cell* cell) const {
    const bool is_among = cell >= cells_.begin() && cell < cells_.end();
    return is_among ? labels_[cell - cells_.begin()] : CellLabel(*cell);
  }

 private:
  const absl::Span<const Cell> cells_;
  const std::vector<std::string> labels_;
};

// An entry with BatchText; its CSV field has all digits.
inline Figure Batch(double examples) {
  return Number(examples, BatchText(examples));
}

// "97.1" for 0.971.
inline std::string PercentDigits(double share) {
  return FixedText(100 * share, 1);
}

// "tokens_per_second" for "tokens/s".
std::string RateName(absl::string_view unit);

// Interval of the predicted rate: "[90, 110]", "from 90 up", "-" if unknown.
Figure RateEnds(const Prediction& prediction);

inline double OfTheIdealSpeed(const Waterfall& waterfall) {
  return waterfall.ideal_seconds / waterfall.measured_seconds;
}

// Whether the loss or gain is at least one percentage point of the ideal speed
// and more than noise.
bool IsNotable(const Loss& loss);

// Returns, for each way of scaling at the largest world size, up to three
// waterfalls, nearest to the ideal speed first, at most one of a pipeline.
std::vector<const Waterfall*> NotableWaterfalls(const Answer& answer);

Table LayoutTable(const Answer& answer);

// Rows are medians over repetitions. Ablations have no row.
std::vector<Table> PipelineTables(absl::Span<const Cell> cells);

std::vector<Table> ScalingTables(const Answer& answer);
std::vector<Table> LedgerTables(const Answer& answer);
std::vector<Table> CostTables(const Answer& answer);

// One table per profile, in the answer's order.
std::vector<Table> LayerTables(const Answer& answer);

// Time to the target loss, without rows if there is no target, and staleness of
// gradients.
std::vector<Table> LearningTables(const Answer& answer);

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_ANSWER_TABLES_H_
