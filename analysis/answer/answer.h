// The results of a study's runs, as figures and sentences. AnswerText formats
// them for a terminal, report/ draws them.
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
  BootstrapConfig bootstrap;  // for Amdahl's law
  ComparisonConfig comparison;
  // training loss to report the time to; 0 to report none
  double target_loss = 0;
  // Batch from which the study's strong and weak scaling start: see
  // ScalingRows. 0 if unknown.
  int64_t base_batch = 0;
};

// A cell under one way of scaling, a base case, or a cell without a base.
struct ScalingRow {
  const Cell* cell = nullptr;
  // "base", "strong", "weak", "both" (strong and weak), "fixed_memory", or "-"
  // if the cell was not compared
  std::string scaling;
  const Cell* base = nullptr;  // nullptr for "base" and "-"
  // An error if there is no efficiency: the reason, or empty for "base".
  absl::StatusOr<Efficiency> efficiency = absl::NotFoundError("");
};

// The experimentally determined serial fraction of one world size.
struct SerialFraction {
  int64_t world_size = 1;
  double value = 0;  // KarpFlatt
  // from the speedup's interval; NaN if that is unknown
  Interval interval;
};

// The rows of one trainer, under one way of scaling, with one base.
struct ScalingSeries {
  std::string trainer;  // Cell::Trainer
  Scaling scaling = Scaling::kStrong;
  std::vector<const ScalingRow*> rows;  // by world size
  // Strong scaling only: nullopt if the law could not be fitted, for the reason
  // in `no_law`.
  std::optional<AmdahlsLaw> law;
  std::string no_law;
  std::vector<SerialFraction> serial_fractions;  // strong scaling only
  std::string serial_trend;                      // see SerialTrend
};

// The losses of a cell's first run: per step, the mean over all examples of the
// ranks that compute the loss.
struct LossCurve {
  std::string name;  // "ddp on 2 ranks, batch 32"
  std::vector<int64_t> steps;
  std::vector<double> losses;
};

// One step of a cell's first replica, as measured and as simulated. `simulated`
// is empty if the run recorded no simulation.
struct TimelinePicture {
  const Cell* cell = nullptr;
  std::vector<TimelineRecord> measured;  // by pipeline rank
  std::vector<TimelineRecord> simulated;
};

// The layers of one run of a cell, each timed separately (--profile).
struct LayerProfile {
  const Cell* cell = nullptr;
  std::vector<LayerRecord> layers;  // in the model's order
};

struct CellStraggler {
  const Cell* cell = nullptr;
  Straggler straggler;
};

struct CellLearning {
  const Cell* cell = nullptr;
  // time to Answer::target_loss, one value per run that reached it
  std::vector<double> seconds = {};
  // while all ranks train, median over runs
  double examples_per_second = 0;
  // gradient pushes of all runs; empty without parameter servers
  Staleness staleness = {};
};

// A layout of ranks compared with the fastest of its LayoutComparison.
struct LayoutRow {
  const Cell* cell = nullptr;
  const Ledger* ledger = nullptr;  // nullptr if the cell has none
  double rate = 0;                 // Cell::ExamplesPerSecond
  Interval rate_interval;          // 95 %; NaN for a single run
  // The fastest layout's rate over this one's. The interval is simultaneous:
  // 95 % for all pairs of the comparison's layouts together (Bonferroni).
  Ratio behind;
  // Whether the interval of `behind` lies above 1, so that the difference is
  // more than noise. True without an interval; false for the fastest layout.
  bool separated = false;
  // The part with the most extra time compared with the fastest layout, for the
  // same examples: "75 ms exposed communication along dp". "" if unknown.
  std::string spends_more = {};
};

// Cells of one world size that do the same work with different layouts.
struct LayoutComparison {
  Scaling scaling = Scaling::kStrong;
  int64_t world_size = 1;
  std::vector<LayoutRow> rows;  // the fastest first
  std::string advice;           // sentences: which layout to use
};

struct Finding {
  std::string title;  // "How well it scales", "What costs most", ...
  std::string text;   // sentences
};

// Its pointers refer to its own cells, rows and ledgers.
struct Answer {
  std::vector<Cell> cells;
  std::vector<ScalingRow> rows;  // ScalingRows
  std::vector<ScalingSeries> series;
  std::vector<CellLedger> ledgers;        // cells without one are left out
  std::vector<CellStraggler> stragglers;  // likewise
  std::vector<Waterfall> waterfalls;
  std::vector<LayoutComparison> layouts;  // by way of scaling and world size
  // Recorded layouts of gpt; Score::left_out is moved to `notes`.
  std::optional<Score> plan_score;
  std::vector<Ablation> ablations;
  std::vector<NetworkModel> networks;  // one per measured backend
  std::vector<Configuration> calls;    // the benchmark's rows, of every layer
  std::vector<TimelinePicture> timelines;
  std::vector<LayerProfile> profiles;
  std::vector<Score> scores;
  std::vector<Prediction> predictions;  // world sizes that were not run
  std::vector<LossCurve> losses;
  double target_loss = 0;              // AnswerConfig::target_loss
  std::vector<CellLearning> learning;  // no ablations
  std::vector<Finding> findings;
  std::vector<std::string> notes;  // refusals, runs left out, warnings
};

// Computes the answer. It depends only on `runs` and `config`, so records read
// back from disk give the same one. Analyses that fail leave a note.
std::unique_ptr<Answer> Analyze(std::vector<RunTrace> runs,
                                const AnswerConfig& config);

// Returns one row per cell and way of scaling, base cases first. If a cell has
// bases under several ways of scaling, keeps those whose global batch or batch
// per rank is config.base_batch; if there are none, those of the largest global
// batch, because smaller bases are run only to explain losses. If base_batch is
// known, a row whose base has another batch but the same peak memory is fixed
// memory instead of weak scaling. Omits ablations and, unless there is no
// comparison at all, base cases with which nothing is compared. `cells` must
// outlive the result.
std::vector<ScalingRow> ScalingRows(absl::Span<const Cell> cells,
                                    const AnswerConfig& config);

// Groups the rows that have an efficiency by trainer, way of scaling and base;
// rows under "both" are in two series. `rows` must outlive the result.
std::vector<ScalingSeries> ScalingSeriesOf(absl::Span<const ScalingRow> rows,
                                           const AnswerConfig& config);

// Returns the serial fractions of the rows above the base's world size, in
// their order. Empty unless the series is strong scaling, for which the metric
// is defined. Every row must have a base and an efficiency.
std::vector<SerialFraction> SerialFractionsOf(const ScalingSeries& series);

// "rises from 3.1 % on 2 ranks to 8.0 % on 8: ...": compares the serial
// fractions of the smallest and the largest world size by the 95 % interval of
// their difference, which accounts for their common base case. Calls the
// fraction constant only if an equivalence test shows that it changes by less
// than a quarter. "" for a single world size, if a cell has only one
// repetition, and unless the series is strong scaling.
std::string SerialTrend(const ScalingSeries& series);

// Compares layouts on the same number of ranks (two or more) and hosts, with
// the same hardware, threads and shared flags, and the same global batch or,
// under fixed memory, the peak memory of their base. Uses cells that have an
// efficiency, with the largest batch of each layout. Reads the cells, rows,
// series and ledgers of `answer`, which must outlive the result.
std::vector<LayoutComparison> CompareLayouts(const Answer& answer);

// Omits findings for which the runs have no data. `answer` must be complete
// except for its findings.
std::vector<Finding> FindingsOf(const Answer& answer);

// Parts of FindingsOf, with an empty text if there is nothing to report: the
// next larger world size, the ledger's residual and the accuracy of
// predictions, the time to the target loss, and the staleness of gradients.
Finding WhatComesNext(const Answer& answer);
Finding HowFarToTrust(const Answer& answer);
Finding TimeToLoss(const Answer& answer);
Finding HowStale(const Answer& answer);

// `runs` must be those from which GroupIntoCells made `cell`.
CellLearning LearningOf(const Cell& cell, absl::Span<const RunTrace> runs,
                        double target_loss);

// "strong scaling", "fixed memory".
std::string ScalingTitle(Scaling scaling);

// "ddp on 2 ranks, strong scaling".
std::string WaterfallName(const Waterfall& waterfall);

// The quantity that `scaling` keeps equal: "with the same global batch of 64".
std::string HeldEqual(const Cell& cell, Scaling scaling);

// ScalingSeries::serial_trend as a sentence, which names the trainer.
std::string TrendSentence(const ScalingSeries& series);

// Median over the repetitions.
double MedianOf(const Cell& cell, double PipelineUse::*metric);
double MedianOf(const Cell& cell, double Throughput::*metric);

// Caveats about a cell's figures: "ranks shared cuda:0", ...
std::vector<std::string> MarksOf(const Cell& cell);

// A profiled pass through a layer in one direction. Unknown numbers are NaN.
struct LayerPass {
  std::string layer;
  std::string direction;  // "forward", "backward"
  double seconds = 0;     // median
  double flops = 0, bytes = 0;
  double flops_per_second = std::numeric_limits<double>::quiet_NaN();
  double bytes_per_second = std::numeric_limits<double>::quiet_NaN();
  double flops_per_byte = std::numeric_limits<double>::quiet_NaN();
  // shortest time that the device's peaks allow
  double limit_seconds = std::numeric_limits<double>::quiet_NaN();
  // peak that sets the limit: "compute", "memory", or "" if unknown
  std::string bound = {};
};

// Returns the forward and backward passes of the layers, in the model's order.
std::vector<LayerPass> PassesOf(const LayerProfile& profile);

// Returns all tables that have rows. Terminals and the report show them.
std::vector<Table> TablesOf(const Answer& answer);

// Returns the tables, findings and notes as text for a terminal. Replaces
// control characters, which records may contain, by "?".
std::string AnswerText(const Answer& answer);

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_ANSWER_ANSWER_H_
