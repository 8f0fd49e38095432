// Everything that a study's runs say, in figures and in words, before it is
// drawn or printed: answer_text and report/ render it.
#ifndef RANKWISE_ANALYSIS_ANSWER_ANSWER_H_
#define RANKWISE_ANALYSIS_ANSWER_ANSWER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "analysis/compare/record_set.h"
#include "analysis/cost_model/network_model.h"
#include "analysis/ledger/ledger.h"
#include "analysis/prediction/prediction.h"
#include "analysis/runs/cell.h"
#include "analysis/runs/run_trace.h"
#include "analysis/scaling/efficiency.h"
#include "analysis/scaling/scaling_law.h"

namespace rankwise {

struct AnswerConfig {
  ThroughputConfig throughput;
  BootstrapConfig bootstrap;  // of the laws of scaling
  bool force = false;  // compare what would be refused, with a warning mark
  // More threads than cores were asked for.
  bool allow_oversubscribed = false;
};

// A cell under one way of scaling, or as a base case.
struct ScalingRow {
  const Cell* cell = nullptr;
  std::string scaling;         // "base", "strong", "weak", "both", "-", ...
  const Cell* base = nullptr;  // null: this is the base case, or none fits
  absl::StatusOr<Efficiency> efficiency = absl::NotFoundError("");
};

// The serial fraction that the speedup of one world size stands for.
struct SerialFraction {
  int64_t world_size = 1;
  double value = 0;   // KarpFlatt
  Interval interval;  // from the speedup's; NaN without one
};

// The rows of one trainer and schedule under one way of scaling, with the base.
struct ScalingSeries {
  std::string trainer;
  Scaling scaling = Scaling::kStrong;
  std::vector<const ScalingRow*> rows;  // by world size
  std::vector<FittedLaw> laws;
  std::vector<std::string> no_law;  // which law was not fitted, and why
  std::vector<SerialFraction> serial_fractions;  // of strong scaling
  std::string serial_trend;  // "rises from ...": see SerialTrend
};

// Mean over the ranks that see the loss, of one run per cell.
struct LossCurve {
  std::string name;  // "ddp on 2 ranks, batch 32"
  std::vector<int64_t> steps;
  std::vector<double> losses;
};

// One step of one cell's first replica, measured and, where it was, simulated.
struct TimelinePicture {
  const Cell* cell = nullptr;
  std::vector<TimelineRecord> measured;  // by pipeline rank
  std::vector<TimelineRecord> simulated;
};

struct CellStraggler {
  const Cell* cell = nullptr;
  Straggler straggler;
};

struct Finding {
  std::string title;  // "How well it scales", "What costs most", ...
  std::string text;   // sentences
};

// Pointers point into the answer's own cells and rows.
struct Answer {
  std::vector<Cell> cells;
  std::vector<ScalingRow> rows;  // base cases first; ablations left out
  std::vector<ScalingSeries> series;
  std::vector<CellLedger> ledgers;        // of cells that have one
  std::vector<CellStraggler> stragglers;  // of cells that have one
  std::vector<Waterfall> waterfalls;
  std::vector<Ablation> ablations;
  std::vector<NetworkModel> networks;  // one per backend that was measured
  std::vector<Configuration> calls;    // the benchmark's rows, whatever layer
  std::vector<TimelinePicture> timelines;
  std::vector<Score> scores;
  std::vector<Prediction> predictions;  // of sizes that were not run
  std::vector<LossCurve> losses;
  std::vector<Finding> findings;
  std::vector<std::string> notes;  // refusals, runs left out, warnings
};

// Depends on the runs alone: records read back from disk give the same answer.
std::unique_ptr<Answer> Analyze(std::vector<RunTrace> runs,
                                const AnswerConfig& config);

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_ANSWER_ANSWER_H_
