// What a configuration would take at a world size where it has not run, how
// right such predictions were where it has, and what to choose by them.
#ifndef RANKWISE_ANALYSIS_PREDICTION_PREDICTION_H_
#define RANKWISE_ANALYSIS_PREDICTION_PREDICTION_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "analysis/cost_model/network_model.h"
#include "analysis/prediction/recordings.h"
#include "analysis/runs/cell.h"
#include "analysis/runs/run_trace.h"
#include "analysis/runs/throughput.h"
#include "analysis/stats/statistics.h"
#include "records/example_unit.h"

namespace rankwise {

// The predicted step of a layout; step_seconds is Throughput::step_seconds. Its
// intervals are 95 % intervals if `conditions` is empty.
struct Prediction : StepEstimate {
  Layout layout = {};
  // Repetitions that the interval is made from; nullopt without recorded runs
  // of the layout's model.
  std::optional<int64_t> fitted_runs = {};
  double examples_per_second = 0;
  Interval examples_interval = {};  // high: infinite where the step's low is 0
  ExampleUnit unit = {};            // in which rates are printed
  double peak_bytes = 0;            // of the fullest rank; 0: not known
  double link_seconds = 0;          // as in SimulatedLayout
  // Extrapolations beyond the measurements, and other assumptions, one line
  // each.
  std::vector<std::string> extrapolations = {};
  std::vector<std::string> assumptions = {};
  // Conditions under which the interval holds, as CostEstimate::conditions.
  std::set<std::string> conditions = {};

  bool extrapolated() const { return !extrapolations.empty(); }
};

// What of the step is owed to the link between hosts, where that is 1 % of it
// or more; else "".
std::string LinkSentence(const Prediction& prediction);

// Predicts the steps of layouts. The implementations differ in how they know
// the computing times: from recorded runs of any model (RecordedPredictor), or
// from the operations of a transformer (plan::StepModel).
class Predictor {
 public:
  virtual ~Predictor() = default;

  // InvalidArgument if the layout is impossible; FailedPrecondition, with the
  // command that would fix it, if a measurement is missing.
  virtual absl::StatusOr<Prediction> Predict(const Layout& layout) = 0;
};

// Predicts from a study's runs: computing from the recorded steps, buckets from
// the traffic records of ddp, stages from the timelines of the pipelines, and
// communication from `network`.
class RecordedPredictor : public Predictor {
 public:
  // `runs` must outlive the predictor. FailedPrecondition, with the command
  // that would fix it, if nothing can be predicted from them.
  static absl::StatusOr<RecordedPredictor> Create(
      absl::Span<const RunTrace> runs, const NetworkModel& network,
      const ThroughputConfig& config);

  absl::StatusOr<Prediction> Predict(const Layout& layout) override;

  // The layouts of `world_size` ranks and `global_batch` examples a step that
  // can be predicted, or refused with a reason: ddp in recorded and in other
  // buckets, and every recorded pipeline's cut in every schedule. Those that do
  // not divide evenly go to `left_out`.
  std::vector<Layout> Candidates(int64_t world_size, int64_t global_batch,
                                 std::vector<std::string>* left_out) const;

 private:
  explicit RecordedPredictor(const NetworkModel& network) : network_(network) {}

  NetworkModel network_;
  DdpRecordings ddp_;
  std::vector<RecordedPipeline> pipelines_;
  ModelError ddp_error_, pipeline_error_;
  ExampleUnit unit_;
};

// A recorded configuration to compare a prediction with.
struct HeldOut {
  const Cell* cell = nullptr;
  absl::StatusOr<Layout> layout;
  Predictor* predictor = nullptr;  // has not seen the cell; may be null if
                                   // `layout` is an error
  std::string model = {}, precision = {};  // of a planned transformer
};

// A prediction and the measurement that it had not seen.
struct ScoredPrediction {
  Prediction prediction = {};
  const Cell* cell = nullptr;              // the held-out one; null: not kept
  std::string model = {}, precision = {};  // of a planned transformer
  double measured_seconds = 0;             // median of the repetitions' steps
  double measured_bytes = 0;               // of the fullest rank; 0: not known
  int64_t hosts = 1;                       // that the measured ranks ran on
  // The interval of two runs holds almost everything, and that of one leaves
  // out how far runs differ.
  bool counts_for_coverage = true;

  double Error() const {
    return prediction.step_seconds / measured_seconds - 1;
  }
  bool IsCovered() const {
    return measured_seconds >= prediction.step_interval.low &&
           measured_seconds <= prediction.step_interval.high;
  }
};

// The layouts of one model, precision, number of ranks and hosts, and global
// batch.
struct Regret {
  size_t layouts = 0;
  ScoredPrediction choice;  // of those predicted to fit, the fastest predicted
  ScoredPrediction best;    // of those that fit, the fastest measured

  // The choice's measured step over the best's, minus 1.
  double Share() const {
    return choice.measured_seconds / best.measured_seconds - 1;
  }
};

struct Score {
  std::vector<ScoredPrediction> points;
  int64_t fitted_up_to = 0;  // the largest world size that was used
  double median_absolute_error = 0;
  // The share that is covered of the points that count; NaN: none does.
  double coverage = 0;
  // Of all points: the interval's width over the predicted step. Coverage by
  // wide intervals says little.
  double median_relative_width = 0;
  std::vector<Regret> regrets;
  double median_regret = std::numeric_limits<double>::quiet_NaN();
  std::vector<std::string> left_out;  // held-out cells without a prediction
  std::string warning;  // a line that applies to all points; "" without one
};

// Ranks on the fullest host if ranks are spread evenly.
int64_t RanksPerHost(const Cell& cell);

// Whether the cell has more than `fit_up_to` ranks and ordinary steps: with
// communication, and not captured.
bool IsHeldOut(const Cell& cell, int64_t fit_up_to);

// Compares each cell with its prediction. The points hold pointers to the
// cells. Cells without a prediction go to Score::left_out. Regrets compare, in
// each group of points with the same model, precision, ranks, hosts and global
// batch, the layout predicted to be fastest with the fastest measured, among
// those that fit into `memory_bytes` per rank (0: no limit).
Score ScoreHeldOut(absl::Span<const HeldOut> held_out, double memory_bytes);

// Fits on the runs of at most `fit_up_to` ranks, and on those of ddp of any
// size that exchange nothing (--skip_communication); predicts every other cell,
// and compares (docs/prediction.md). `runs` are those that `cells` were grouped
// from; the points hold pointers into `cells`. Fit `network` on at most
// `fit_up_to` ranks too. FailedPrecondition where either side is empty.
absl::StatusOr<Score> ScorePredictions(absl::Span<const RunTrace> runs,
                                       absl::Span<const Cell> cells,
                                       int64_t fit_up_to,
                                       const NetworkModel& network,
                                       const ThroughputConfig& config);

struct RecommendConfig {
  int64_t world_size = 1;
  int64_t global_batch = 0;       // examples a step
  double memory_limit_bytes = 0;  // of a rank; 0: none
  Layout hosts = {};              // ranks_per_host and hierarchical of all
};

struct Recommendation {
  std::vector<Prediction> candidates;  // those that fit, the fastest first
  std::vector<std::string> left_out;   // and why: memory, divisibility
  std::string reason;                  // why the first one, in a sentence
};

// The fastest layouts of RecommendConfig::world_size ranks for the same global
// batch. Under a memory limit, layouts whose memory is not known are left out.
// FailedPrecondition, with the reasons, where none is left.
absl::StatusOr<Recommendation> Recommend(RecordedPredictor& predictor,
                                         const RecommendConfig& config);

// One line per prediction, "*" marking those beyond what was measured; below
// the table, every assumption once, with the layouts that it is made for.
// `one_rank_examples_per_second` is what the efficiency is relative to: the
// rate of one rank with the same batch per rank, or, where the global batch is
// held equal, with all of that batch; 0: no efficiency.
std::string PredictionTable(absl::Span<const Prediction> predictions,
                            double one_rank_examples_per_second = 0);

// Every held-out point next to its prediction, the median error, the coverage
// and the median width of the intervals.
std::string ScoreTable(const Score& score);

// The reason, the 10 fastest candidates, and what was left out.
std::string RecommendationText(const Recommendation& recommendation);

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_PREDICTION_PREDICTION_H_
