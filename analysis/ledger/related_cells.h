// The cells beside a cell and its base that tell causes of a loss apart.

#ifndef ANALYSIS_LEDGER_RELATED_CELLS_H_
#define ANALYSIS_LEDGER_RELATED_CELLS_H_

#include "absl/types/span.h"
#include "analysis/cell.h"
#include "analysis/ledger/waterfall.h"

namespace rankwise {

// Seconds that the examples of one step take at the cell's throughput: its
// global batch over the median of its repetitions' examples/s.
double StepSeconds(const Cell& cell);

// Examples of a step per rank.
double WorkPerRank(const Cell& cell);

// Examples of one forward and backward pass, --batch_size; the batch per rank
// where the run has no such flag.
double ExamplesPerPass(const Cell& cell);

// Over how many ranks one copy of the model is cut.
double RanksPerModel(const Cell& cell);

// Of `base`'s trainer, world size and flags, with passes of as many examples as
// `cell`'s; of several the one whose work per rank is nearest. It may be the
// base. Null if there is none.
const CellLedger* WithPassesOf(const Cell& cell, const Cell& base,
                               absl::Span<const CellLedger> cells);

// Differs from `cell` in skip_communication only, and is an ablation. Null if
// there is none.
const CellLedger* WithoutCommunication(const Cell& cell,
                                       absl::Span<const CellLedger> cells);

}  // namespace rankwise

#endif  // ANALYSIS_LEDGER_RELATED_CELLS_H_
