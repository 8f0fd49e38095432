// From the ideal step to the measured one, cause by cause: what the efficiency
// of a cell was lost to. docs/metrics.md has the formulas.
#ifndef RANKWISE_ANALYSIS_LEDGER_WATERFALL_H_
#define RANKWISE_ANALYSIS_LEDGER_WATERFALL_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "analysis/ledger/ledger.h"
#include "analysis/scaling/efficiency.h"

namespace rankwise {

// A cell of the study with the median ledger of its repetitions.
struct CellLedger {
  const Cell* cell = nullptr;
  Ledger ledger;
};

enum class LossCause {
  kSmallerBatch,       // the same work is slower in a rank's smaller batches
  kSharedMachine,      // ranks that do not communicate slow each other down
  kCommBesideCompute,  // computing is slower while communication runs
  kCommInGraph,        // of captured steps: it, and waiting for communication
  kExposedComm,        // waiting for communication
  kBubble,             // waiting for other stages
  kImbalance,          // one rank has more to do, or is slower, all the time
  kNoise,              // the slowest of N variable ranks: expected maximum
  kDataWait,
  kRest,
};

struct Loss {
  LossCause cause = LossCause::kRest;
  double seconds = 0;            // of the step; negative: gained
  double efficiency_points = 0;  // of 1; all losses add up to 1 - efficiency
};

struct Waterfall {
  const Cell* cell = nullptr;
  const Cell* base = nullptr;
  Scaling scaling = Scaling::kStrong;
  double ideal_seconds = 0;     // base step * work per rank ratio
  double measured_seconds = 0;  // ideal_seconds + sum of losses
  std::vector<Loss> losses;     // in the order of LossCause, zeros left out
  // Causes that could not be separated, and what would tell them: "smaller
  // batches not separated from cores and memory that ranks share, as single on
  // 1 rank was not run with --batch_size=16", or an ablation that computed no
  // faster. Both are then in the first one's loss.
  std::vector<std::string> merged;
};

// "smaller batches", "exposed communication", ...
std::string LossName(LossCause cause);
// One sentence about what to change against it.
std::string Remedy(LossCause cause);

// In addition to `cell` and `base`, `cells` may hold the two that separate
// causes: a cell of the base's trainer and world size whose passes hold as many
// examples as `cell`'s (--batch_size), and one that differs from `cell` in
// skip_communication only. Fails where CheckEfficiency does, and where `cell`
// or `base` has no ledger.
absl::StatusOr<Waterfall> ExplainLoss(absl::Span<const CellLedger> cells,
                                      const CellLedger& base,
                                      const CellLedger& cell, Scaling scaling,
                                      const ComparisonConfig& config = {});

// The ledger against an experiment: the same cell with communication switched
// off. What the step got shorter by should be what the ledger calls exposed
// communication, and what communication slowed computing down by. A pipeline
// still waits for its stages then, by messages of one number: of its exposed
// communication and bubble, what went away counts.
struct Ablation {
  const Cell* cell = nullptr;
  const Cell* without = nullptr;
  double saved_seconds = 0;    // step with - step without
  double exposed_seconds = 0;  // likewise, by the ledgers' critical ranks
  double bubble_seconds = 0;   // likewise; 0 outside pipelines
  double slowed_seconds = 0;   // compute with - compute without
  // The steps were captured: slowed_seconds is all that communication costs,
  // the ledger does not separate it, and the two below are NaN.
  bool captured = false;
  // (exposed + bubble + slowed) / saved - 1; NaN where nothing was saved.
  double disagreement = 0;
  // exposed / saved - 1, likewise: as if communication slowed nothing down.
  double exposed_disagreement = 0;
};

// One per cell that was run with and without communication.
std::vector<Ablation> FindAblations(absl::Span<const CellLedger> cells);

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_LEDGER_WATERFALL_H_
