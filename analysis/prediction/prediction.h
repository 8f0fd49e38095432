// Predicts the step of a configuration at unmeasured world sizes, scores such
// predictions against measurements, and recommends layouts.
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

// The predicted step of a layout; step_seconds is Throughput::step_seconds. The
// intervals are 95 % intervals if `conditions` is empty.
struct Prediction : StepEstimate {
  Layout layout = {};
  // Number of repetitions behind the interval; nullopt without recorded runs of
  // the layout's model.
  std::optional<int64_t> fitted_runs = {};
  double examples_per_second = 0;
  Interval examples_interval = {};  // high is infinite if the step's low is 0
  ExampleUnit unit = {};            // unit of printed rates
  double peak_bytes = 0;            // of the fullest rank; 0 if unknown
  double link_seconds = 0;          // as in SimulatedLayout
  // Extrapolations beyond the measurements, and other assumptions, one line
  // each.
  std::vector<std::string> extrapolations = {};
  std::vector<std::string> assumptions = {};
  // conditions under which the interval holds, as CostEstimate::conditions
  std::set<std::string> conditions = {};

  bool extrapolated() const { return !extrapolations.empty(); }
};

// Describes the cost of the link between hosts if it is at least 1 % of the
// step, else "".
std::string LinkSentence(const Prediction& prediction);

// Predicts the steps of layouts. Implementations differ in the source of
// computing times: recorded runs of any model (RecordedPredictor), or the
// operations of a transformer (plan::StepModel).
class Predictor {
 public:
  virtual ~Predictor() = default;

  // InvalidArgument if the layout is impossible; FailedPrecondition, with the
  // command that fixes it, if a measurement is missing.
  virtual absl::StatusOr<Prediction> Predict(const Layout& layout) = 0;
};

// Predicts from a study's runs: computation from the recorded steps, buckets
// from ddp's traffic records, stages from the pipelines' timelines, and
// communication from `network`.
class RecordedPredictor : public Predictor {
 public:
  // `runs` must outlive the predictor. FailedPrecondition, with the command
  // that fixes it, if the runs allow no prediction.
  static absl::StatusOr<RecordedPredictor> Create(
      absl::Span<const RunTrace> runs, const NetworkModel& network,
      const ThroughputConfig& config);

  absl::StatusOr<Prediction> Predict(const Layout& layout) override;

  // Returns the layouts of `world_size` ranks and `global_batch` examples per
  // step that can be predicted, or rejected with a reason: ddp with recorded
  // and with other buckets, and every recorded partition of a pipeline in every
  // schedule. Appends those that do not divide evenly to `left_out`.
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
  // has not seen the cell; may be nullptr if `layout` is an error
  Predictor* predictor = nullptr;
  std::string model = {}, precision = {};  // of a planned transformer
};

// A prediction and the measurement that was held out from it.
struct ScoredPrediction {
  Prediction prediction = {};
  const Cell* cell = nullptr;  // held-out cell; nullptr if not retained
  std::string model = {}, precision = {};  // of a planned transformer
  double measured_seconds = 0;             // median of the repetitions' steps
  double measured_bytes = 0;               // of the fullest rank; 0 if unknown
  int64_t hosts = 1;  // number of hosts of the measured ranks
  // False if the interval is from one run, which ignores variation between
  // runs, or from two, which is too wide to miss.
  bool counts_for_coverage = true;

  double Error() const {
    return prediction.step_seconds / measured_seconds - 1;
  }
  bool IsCovered() const {
    return measured_seconds >= prediction.step_interval.low &&
           measured_seconds <= prediction.step_interval.high;
  }
};

// Comparison of the layouts of one model, precision, number of ranks and hosts,
// and global batch.
struct Regret {
  size_t layouts = 0;
  ScoredPrediction choice;  // fastest predicted of those predicted to fit
  ScoredPrediction best;    // fastest measured of those that fit

  // Returns the choice's measured step over the best's, minus 1.
  double Share() const {
    return choice.measured_seconds / best.measured_seconds - 1;
  }
};

struct Score {
  std::vector<ScoredPrediction> points;
  int64_t fitted_up_to = 0;  // largest world size used for fitting
  double median_absolute_error = 0;
  // covered share of the points that count for coverage; NaN if none does
  double coverage = 0;
  // Interval width over the predicted step, of all points: wide intervals make
  // high coverage meaningless.
  double median_relative_width = 0;
  std::vector<Regret> regrets;
  double median_regret = std::numeric_limits<double>::quiet_NaN();
  std::vector<std::string> left_out;  // held-out cells without a prediction
  std::string warning;  // a line that applies to all points, or ""
};

// Returns the ranks on the fullest host if ranks are distributed evenly.
int64_t RanksPerHost(const Cell& cell);

// Whether the cell has more than `fit_up_to` ranks and ordinary steps: with
// communication, and not captured.
bool IsHeldOut(const Cell& cell, int64_t fit_up_to);

// Compares each cell with its prediction. The points hold pointers to the
// cells. Cells without a prediction go to Score::left_out. Regrets compare, in
// each group of points with the same model, precision, ranks, hosts and global
// batch, the layout predicted to be fastest with the fastest measured, among
// those that fit into `memory_bytes` per rank (0 for no limit).
Score ScoreHeldOut(absl::Span<const HeldOut> held_out, double memory_bytes);

// Fits to the runs of at most `fit_up_to` ranks, and to those of ddp of any
// size without communication (--skip_communication); predicts every other cell,
// and compares (docs/prediction.md). `cells` must be grouped from `runs`; the
// points hold pointers into `cells`. `network` must be fitted to at most
// `fit_up_to` ranks, too. FailedPrecondition if there are no runs to fit to, or
// none to predict.
absl::StatusOr<Score> ScorePredictions(absl::Span<const RunTrace> runs,
                                       absl::Span<const Cell> cells,
                                       int64_t fit_up_to,
                                       const NetworkModel& network,
                                       const ThroughputConfig& config);

struct RecommendConfig {
  int64_t world_size = 1;
  int64_t global_batch = 0;       // examples per step
  double memory_limit_bytes = 0;  // per rank; 0 for no limit
  Layout hosts = {};  // ranks_per_host and hierarchical, for all candidates
};

struct Recommendation {
  std::vector<Prediction> candidates;  // those that fit, fastest first
  std::vector<std::string> left_out;   // with reasons: memory, divisibility
  std::string reason;  // why the first candidate is recommended, in a sentence
};

// Returns the fastest layouts of RecommendConfig::world_size ranks for the same
// global batch. With a memory limit, layouts of unknown memory are left out.
// FailedPrecondition, with the reasons, if none is left.
absl::StatusOr<Recommendation> Recommend(RecordedPredictor& predictor,
                                         const RecommendConfig& config);

// Formats one line per prediction, with "*" marking extrapolations; below the
// table, every assumption once, with the layouts it applies to.
// `one_rank_examples_per_second` is the reference of the efficiency: the rate
// of one rank with the same batch per rank or, for a constant global batch,
// with all of it; 0 for no efficiency column.
std::string PredictionTable(absl::Span<const Prediction> predictions,
                            double one_rank_examples_per_second = 0);

// Formats every held-out point next to its prediction, the median error, and
// the intervals' coverage and median width.
std::string ScoreTable(const Score& score);

// Formats the reason, the 10 fastest candidates, and the layouts left out.
std::string RecommendationText(const Recommendation& recommendation);

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_PREDICTION_PREDICTION_H_
