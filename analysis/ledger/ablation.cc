#include <limits>

#include "analysis/ledger/related_cells.h"
#include "analysis/ledger/waterfall.h"

namespace rankwise {
namespace {

Ablation Compare(const CellLedger& with, const CellLedger& without) {
  const LedgerParts& parts = with.ledger.critical;
  const LedgerParts& left = without.ledger.critical;
  Ablation result;
  result.cell = with.cell;
  result.without = without.cell;
  result.saved_seconds = StepSeconds(*with.cell) - StepSeconds(*without.cell);
  result.exposed_seconds =
      parts.exposed_comm_seconds - left.exposed_comm_seconds;
  result.bubble_seconds = parts.bubble_seconds - left.bubble_seconds;
  result.slowed_seconds = parts.compute_seconds - left.compute_seconds;
  result.captured = with.ledger.IsCaptured();
  result.disagreement = result.exposed_disagreement =
      std::numeric_limits<double>::quiet_NaN();
  if (result.saved_seconds > 0 && !result.captured) {
    result.disagreement = (result.exposed_seconds + result.bubble_seconds +
                           result.slowed_seconds) /
                              result.saved_seconds -
                          1;
    result.exposed_disagreement =
        result.exposed_seconds / result.saved_seconds - 1;
  }
  return result;
}

}  // namespace

std::vector<Ablation> FindAblations(absl::Span<const CellLedger> cells) {
  std::vector<Ablation> ablations;
  for (const CellLedger& cell : cells) {
    const CellLedger* without = WithoutCommunication(*cell.cell, cells);
    if (without != nullptr) ablations.push_back(Compare(cell, *without));
  }
  return ablations;
}

}  // namespace rankwise
