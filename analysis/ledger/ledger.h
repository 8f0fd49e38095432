// Decomposition of a run's step time into parts that sum to the step; detection
// of a persistently slow rank; and attribution of a cell's lost efficiency to
// causes, from the ideal to the measured step. Formulas: docs/metrics.md.
#ifndef RANKWISE_ANALYSIS_LEDGER_LEDGER_H_
#define RANKWISE_ANALYSIS_LEDGER_LEDGER_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "analysis/runs/run_trace.h"
#include "analysis/runs/throughput.h"
#include "analysis/scaling/efficiency.h"
#include "analysis/stats/statistics.h"
#include "records/record.h"

namespace rankwise {

// Parts of a step in seconds; they sum to the step.
struct LedgerParts {
  // In a captured step, everything between data wait and residual, including
  // exposed communication: one graph launch cannot be divided.
  double compute_seconds = 0;
  // Exposed communication: time during which a rank only communicated, along
  // one of the four mesh axes. Along dp, waiting for gradients.
  double exposed_dp_seconds = 0;
  // waiting for another stage's computation
  double bubble_seconds = 0;
  double data_wait_seconds = 0;
  double residual_seconds = 0;  // remainder
  // waiting within a layer
  double exposed_tp_seconds = 0;
  double exposed_cp_seconds = 0;
  // waiting for a pipeline's message in transit, and passing messages to the
  // transport
  double exposed_pp_seconds = 0;

  double ExposedSeconds() const;  // along all axes
  double Total() const;
  void Add(const LedgerParts& other, double share = 1);
};

struct ExposedAxis {
  const char* axis;
  double LedgerParts::*seconds;
};

// Exposed communication by mesh axis.
inline constexpr ExposedAxis kExposedAxes[] = {
    {"tp", &LedgerParts::exposed_tp_seconds},
    {"cp", &LedgerParts::exposed_cp_seconds},
    {"pp", &LedgerParts::exposed_pp_seconds},
    {"dp", &LedgerParts::exposed_dp_seconds}};

struct LedgerPart {
  const char* key;
  const char* name;
  double LedgerParts::*seconds;
};

inline constexpr LedgerPart kLedgerParts[] = {
    {"compute", "compute", &LedgerParts::compute_seconds},
    {"exposed_tp", "exposed communication along tp",
     &LedgerParts::exposed_tp_seconds},
    {"exposed_cp", "exposed communication along cp",
     &LedgerParts::exposed_cp_seconds},
    {"exposed_pp", "exposed communication along pp",
     &LedgerParts::exposed_pp_seconds},
    {"exposed_dp", "exposed communication along dp",
     &LedgerParts::exposed_dp_seconds},
    {"bubble", "pipeline bubble", &LedgerParts::bubble_seconds},
    {"data_wait", "data wait", &LedgerParts::data_wait_seconds},
    {"residual", "residual", &LedgerParts::residual_seconds}};

struct RankLedger {
  int64_t rank = 0;
  // Stage, if a process runs several stages on its own devices and has one
  // RankLedger per stage; otherwise -1.
  int64_t stage = -1;
  LedgerParts parts = {};   // means over the steps after warm-up
  double busy_seconds = 0;  // median of compute_seconds over these steps
};

// Communication along one mesh axis per step, mean over the ranks.
struct AxisCommunication {
  // Mesh axis. "dp" for gradients, even if averaged over dp and cp together;
  // "all" for a group of all ranks that is not a single axis.
  std::string axis;
  // means over the steps with recorded traffic (--traffic_steps)
  double calls = 0;  // collectives, and sent messages
  double bytes = 0;  // in their buffers
  // Time spent waiting in communication, including for late ranks (unlike the
  // critical rank's exposed communication); over the steps after warm-up.
  double wait_seconds = 0;
};

struct Ledger {
  std::vector<RankLedger> ranks;  // by rank, then stage
  // axes in use, in the order of kExposedAxes; empty without recorded traffic
  std::vector<AxisCommunication> communication;
  // The job's mean step (JobStepSeconds) from the view of its critical ranks:
  // in each step, the rank that waited least and for which the others waited.
  // Its delay carried over from the previous step, after that step's waiting,
  // counts as compute.
  LedgerParts critical;
  // critical.compute_seconds minus the mean over ranks and steps: waiting of
  // the other ranks within the steps, and time by which the job's longest rank
  // exceeded them without being waited for.
  double imbalance_seconds = 0;
  // Random part of imbalance_seconds: in each step the others wait for a
  // different rank ("noise" in docs/metrics.md).
  double noise_seconds = 0;
  // Optimizer's part of compute_seconds; mean over ranks and steps.
  double optimizer_seconds = 0;
  // Replicas in one process: means of StepRecord::first_device_seconds over the
  // steps after warm-up. All but the loss are exposed communication of dp.
  std::map<std::string, double> first_device_seconds;
  // Captured part of compute_seconds, including communication waits; mean over
  // ranks and steps.
  double captured_seconds = 0;
  // median over ranks and steps of |residual| / step
  double median_residual_share = 0;
  bool separates_bubble = true;  // false for records before schema 1.3, whose
                                 // exposed transfers are in the bubble

  bool IsCaptured() const { return captured_seconds > 0; }

  // Returns the mean over ranks and steps.
  double MeanComputeSeconds() const {
    return critical.compute_seconds - imbalance_seconds;
  }
};

// Fails, naming the file, if MeasureThroughput does, or if a step lacks a
// schedule record of a stage that other steps have.
absl::StatusOr<Ledger> MeasureLedger(const RunTrace& run,
                                     const ThroughputConfig& config);

// Computes Ledger::communication of a run with these `ranks`.
std::vector<AxisCommunication> MeasureCommunication(
    const RunTrace& run, absl::Span<const RankLedger> ranks);

// A rank, or one stage of a process with several.
struct LedgerPlace {
  int64_t rank = 0;
  int64_t stage = -1;                   // as in RankLedger
  std::vector<LedgerParts> steps = {};  // after warm-up, in order
  double optimizer_seconds = 0;         // sum over `steps`
  double captured_seconds = 0;          // sum over `steps`
  bool separates_bubble = true;         // as in Ledger
};

// Returns the places of a run, except parameter servers, by rank and stage,
// with equal numbers of steps, from index `first` on. Requires a run that
// CheckMeasurable accepts. Fails, naming the file, if a step's schedule records
// differ in their stages from those of the rank's first step.
absl::StatusOr<std::vector<LedgerPlace>> ReadPlaces(const RunTrace& run,
                                                    size_t first);

// Returns the expected maximum of one independent draw from each of `samples`:
// exact for the samples' empirical distributions, as the distribution function
// of a maximum is the product of those of its parts (David and Nagaraja, Order
// Statistics, 2003, section 2.1). Requires at least one sample, none of them
// empty.
double ExpectedMaximum(const std::vector<std::vector<double>>& samples);

struct Straggler {
  int64_t rank = 0;
  // Number of runs examined. A single run cannot separate a slow rank from a
  // slow placement of its process.
  size_t runs = 0;
  // Delay in a typical step: the rank's own time, compute and data wait, minus
  // the median of the other ranks (in a pipeline, of the ranks of the same
  // stage in other replicas).
  double seconds = 0;
  // Lower confidence bound of `seconds`, above 0; 95 % simultaneously for all
  // ranks.
  double least_seconds = 0;
  double share = 0;  // relative to the median step
};

// Returns the slowest rank of `runs`, which are repetitions of one cell. The
// sample is the rank's delay in each run, as placement changes between runs;
// for a single run, its delay in each of several batches of steps (batch means:
// Law and Kelton, Simulation Modeling and Analysis, 1991, section 9.5.3). Uses
// Student's t with Bonferroni's correction for the choice of the rank. Returns
// nullopt if the delay may be random, if it is below 1 % of the step, or if a
// single run is too short for the test.
//
// Fails if MeasureLedger does, or if the runs differ in their ranks.
absl::StatusOr<std::optional<Straggler>> FindStraggler(
    absl::Span<const RunTrace* const> runs, const ThroughputConfig& config);

// Returns the mean of the ledgers of one cell's repetitions, part by part, so
// that the parts still sum to the step. Requires at least one.
Ledger MeanLedger(absl::Span<const Ledger> ledgers);

// A cell of the study and its repetitions' ledgers.
struct CellLedger {
  const Cell* cell = nullptr;
  Ledger ledger;                         // MeanLedger
  std::vector<Ledger> repetitions = {};  // at least two for intervals
};

enum class LossCause {
  kSmallerBatch,      // work is slower in smaller batches per rank
  kSharedMachine,     // ranks slow each other down without communicating
  kCommSlowsCompute,  // computation is slower during communication
  kCommInGraph,       // captured steps: both slowdown and exposed communication
  kExposedTp,         // exposed communication along the axis tp
  kExposedCp,
  kExposedPp,
  kExposedDp,
  kBubble,     // waiting for other pipeline stages
  kImbalance,  // a rank has more work, or is slower, in all steps
  kNoise,      // the slowest of N randomly varying ranks: expected maximum
  kDataWait,
  kRest,
};

struct Loss {
  LossCause cause = LossCause::kRest;
  double seconds = 0;  // of the step; negative for a gain
  // as a fraction; all losses sum to 1 - efficiency
  double efficiency_points = 0;
  // 95 % interval of `seconds`, from the spread of repetitions; NaN if a cell
  // involved has only one.
  Interval interval = {std::numeric_limits<double>::quiet_NaN(),
                       std::numeric_limits<double>::quiet_NaN()};

  bool IsWithinNoise() const { return interval.low <= 0 && interval.high >= 0; }
};

struct Waterfall {
  const Cell* cell = nullptr;
  const Cell* base = nullptr;
  Scaling scaling = Scaling::kStrong;
  // Step with every device at its peak; NaN if the base's MFU is unknown.
  double limit_seconds = std::numeric_limits<double>::quiet_NaN();
  double ideal_seconds = 0;     // base step * ratio of work per rank
  double measured_seconds = 0;  // ideal_seconds + sum of losses
  std::vector<Loss> losses;     // in the order of LossCause, without zeros
  // Pairs of causes that could not be separated, with the missing run: "smaller
  // batches not separated from cores and memory that ranks share, as single on
  // 1 rank was not run with --batch_size=16". The first cause's loss then
  // includes both.
  std::vector<std::string> merged;
};

// Returns "smaller batches", "exposed communication along tp", ...
std::string LossName(LossCause cause);
// Returns a sentence with a countermeasure.
std::string Remedy(LossCause cause);

// `cells` may include the two cells that separate causes: one of the base's
// trainer, world size and number of hosts with as many examples per pass as
// `cell` (--batch_size), and one that differs from `cell` only in
// skip_communication. Fails if CheckEfficiency does, or if `cell` or `base` has
// no ledger.
absl::StatusOr<Waterfall> ExplainLoss(absl::Span<const CellLedger> cells,
                                      const CellLedger& base,
                                      const CellLedger& cell, Scaling scaling,
                                      const ComparisonConfig& config = {});

// Validates the ledger by an experiment: the same cell without communication.
// The step should become shorter by the ledger's exposed communication plus the
// slowdown of computation by communication. A pipeline without communication
// still waits for its stages: only the difference in its exposed communication
// and bubble counts.
struct Ablation {
  const Cell* cell = nullptr;
  const Cell* without = nullptr;
  double saved_seconds = 0;    // step with - step without
  double exposed_seconds = 0;  // likewise, in the ledgers' critical ranks
  double bubble_seconds = 0;   // bubble, likewise; 0 outside pipelines
  double slowed_seconds = 0;   // compute with - compute without
  // The steps were captured: slowed_seconds is the whole cost of communication,
  // the ledger does not separate it, and the next two are NaN.
  bool captured = false;
  // (exposed + bubble + slowed) / saved - 1; NaN if nothing was saved
  double disagreement = 0;
  // exposed / saved - 1, likewise, assuming no slowdown of computation
  double exposed_disagreement = 0;
};

// Returns one per cell that was run with and without communication.
std::vector<Ablation> FindAblations(absl::Span<const CellLedger> cells);

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_LEDGER_LEDGER_H_
