// Everything that a study's runs say, in figures and in words. AnswerText
// prints it, report/ draws it.
#ifndef RANKWISE_ANALYSIS_ANSWER_ANSWER_H_
#define RANKWISE_ANALYSIS_ANSWER_ANSWER_H_

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "analysis/compare/record_set.h"
#include "analysis/cost_model/network_model.h"
#include "analysis/ledger/ledger.h"
#include "analysis/prediction/prediction.h"
#include "analysis/runs/cell.h"
#include "analysis/runs/run_trace.h"
#include "analysis/runs/throughput.h"
#include "analysis/scaling/efficiency.h"
#include "analysis/scaling/scaling_law.h"
#include "analysis/stats/statistics.h"
#include "analysis/text/table.h"

namespace rankwise {

struct AnswerConfig {
  ThroughputConfig throughput;
  BootstrapConfig bootstrap;  // of Amdahl's law
  ComparisonConfig comparison;
  double target_loss = 0;  // whose time to reach it is reported; 0: none
  // The batch that strong and weak scaling of the study start from; 0: not
  // known. See ScalingRows.
  int64_t base_batch = 0;
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
  // nullopt unless the series is strong scaling and the law can be fitted.
  std::optional<AmdahlsLaw> law;
  std::string no_law;                            // why it could not be fitted
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

// The layers of one run of a cell, each timed alone (--profile).
struct LayerProfile {
  const Cell* cell = nullptr;
  std::vector<LayerRecord> layers;  // in the model's order
};

struct CellStraggler {
  const Cell* cell = nullptr;
  Straggler straggler;
};

// How soon a cell's runs reach a loss, and how stale their gradients were.
struct CellLearning {
  const Cell* cell = nullptr;
  // To Answer::target_loss, of the runs that reached it.
  std::vector<double> seconds = {};
  double examples_per_second = 0;  // median over runs, while all ranks train
  Staleness staleness = {};        // empty without parameter servers
};

// A layout of ranks against the fastest of its LayoutComparison.
struct LayoutRow {
  const Cell* cell = nullptr;
  const Ledger* ledger = nullptr;  // null: none
  double rate = 0;                 // Cell::ExamplesPerSecond
  Interval rate_interval;          // 95 %; NaN of one run
  // The fastest layout's rate over this one's. The interval is simultaneous: a
  // family of 95 % over all pairs of the comparison's layouts (Bonferroni).
  Ratio behind;
  // Slower than the fastest by more than noise: the interval of `behind` lies
  // above 1. True if there is no interval; false for the fastest itself.
  bool separated = false;
  // The part with the most extra time compared with the fastest layout, for the
  // same examples: "75 ms exposed communication along dp". "" if unknown.
  std::string spends_more = {};
};

// Cells of one size that do the same work, by different layouts.
struct LayoutComparison {
  Scaling scaling = Scaling::kStrong;
  int64_t world_size = 1;
  std::vector<LayoutRow> rows;  // the fastest first
  std::string advice;           // which to use
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
  std::vector<LayoutComparison> layouts;  // by way of scaling and world size
  // Of the recorded layouts of gpt; left_out is among the notes.
  std::optional<Score> plan_score;
  std::vector<Ablation> ablations;
  std::vector<NetworkModel> networks;  // one per backend that was measured
  std::vector<Configuration> calls;    // the benchmark's rows, whatever layer
  std::vector<TimelinePicture> timelines;
  std::vector<LayerProfile> profiles;  // of cells that have one
  std::vector<Score> scores;
  std::vector<Prediction> predictions;  // of sizes that were not run
  std::vector<LossCurve> losses;
  double target_loss = 0;              // as in AnswerConfig
  std::vector<CellLearning> learning;  // ablations left out
  std::vector<Finding> findings;
  std::vector<std::string> notes;  // refusals, runs left out, warnings
};

// The answer depends on the runs alone: records read back from disk give the
// same one. The functions below are the steps of Analyze.
std::unique_ptr<Answer> Analyze(std::vector<RunTrace> runs,
                                const AnswerConfig& config);

// One row per cell and way of scaling, base cases first. A cell that fits
// several ways of scaling is compared by the one whose base has the study's
// batch; else by the one whose base has the larger batch: a base of a smaller
// one was run to explain a loss, not to hide it. Where the study's batch is
// known, a cell of another batch that has its base's memory is under fixed
// memory, not weak scaling.
// Ablations, and bases that nothing is compared with, have no row.
std::vector<ScalingRow> ScalingRows(absl::Span<const Cell> cells,
                                    const AnswerConfig& config);

// The rows that have an efficiency, by trainer and way of scaling, each with
// its base and Amdahl's law. `rows` outlive the result.
std::vector<ScalingSeries> ScalingSeriesOf(absl::Span<const ScalingRow> rows,
                                           const AnswerConfig& config);

// Of the series' rows above the base's world size, in their order; none but
// under strong scaling, for which the metric is meant. `rows` have bases.
std::vector<SerialFraction> SerialFractionsOf(const ScalingSeries& series);

// "rises from 3.1 % on 2 ranks to 8.0 % on 8: ...": compares the serial
// fractions of the smallest and the largest world size by the 95 % interval of
// their difference, which accounts for their common base case. Calls the
// fraction constant only if an equivalence test shows that it changes by less
// than a quarter. "" for a single world size, and if a cell has only one
// repetition. `series` as for SerialFractionsOf.
std::string SerialTrend(const ScalingSeries& series);

// The rows that have an efficiency, on two ranks or more: those that hold the
// same global batch equal, or under fixed memory the memory, where there are
// several. From the ledgers and stragglers of `answer`.
std::vector<LayoutComparison> CompareLayouts(const Answer& answer);

// From the figures of `answer`; a question that the runs do not answer has no
// finding.
std::vector<Finding> FindingsOf(const Answer& answer);

// Of FindingsOf: the predictions, their accuracy so far, the time to the target
// loss, and the staleness of gradients.
Finding WhatComesNext(const Answer& answer);
Finding HowFarToTrust(const Answer& answer);
Finding TimeToLoss(const Answer& answer);
Finding HowStale(const Answer& answer);

// `runs` are those that `cell` was grouped from.
CellLearning LearningOf(const Cell& cell, absl::Span<const RunTrace> runs,
                        double target_loss);

// "strong scaling", "fixed memory".
std::string ScalingTitle(Scaling scaling);

// "ddp on 2 ranks, strong scaling".
std::string WaterfallName(const Waterfall& waterfall);

// "with the same global batch of 64".
std::string HeldEqual(const Cell& cell, Scaling scaling);

// A sentence that holds ScalingSeries::serial_trend.
std::string TrendSentence(const ScalingSeries& series);

// Over the repetitions.
double MedianOf(const Cell& cell, double PipelineUse::*metric);
double MedianOf(const Cell& cell, double Throughput::*metric);

// Caveats about a cell's figures: "ranks shared cuda:0", ...
std::vector<std::string> MarksOf(const Cell& cell);

// A profiled pass through a layer in one direction. NaN: not known.
struct LayerPass {
  std::string layer;
  std::string direction;  // "forward", "backward"
  double seconds = 0;     // median
  double flops = 0, bytes = 0;
  double flops_per_second = std::numeric_limits<double>::quiet_NaN();
  double bytes_per_second = std::numeric_limits<double>::quiet_NaN();
  double flops_per_byte = std::numeric_limits<double>::quiet_NaN();
  // The shortest time that the device's peaks allow, and the peak that sets it.
  double limit_seconds = std::numeric_limits<double>::quiet_NaN();
  std::string bound = {};  // "compute", "memory"; "": not known
};

std::vector<LayerPass> PassesOf(const LayerProfile& profile);

// All tables with rows, as the terminal and the report show them.
std::vector<Table> TablesOf(const Answer& answer);

// For a terminal: the tables, the findings and the notes.
std::string AnswerText(const Answer& answer);

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_ANSWER_ANSWER_H_
