// Where a run's step time went, so that the parts add up to the step; the rank
// that is slower than the others all the time; and from the ideal step to the
// measured one, cause by cause, what the efficiency of a cell was lost to.
// docs/metrics.md has the formulas.
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

// Seconds of a step; they add up to it.
struct LedgerParts {
  // Of a captured step everything between data wait and residual, waiting for
  // communication included: one graph launch cannot be divided.
  double compute_seconds = 0;
  // Exposed communication, of which there are four parts: a rank did nothing
  // but communicate along that axis of the mesh. Here it waited for gradients.
  double exposed_dp_seconds = 0;
  // Waiting for another stage's computation.
  double bubble_seconds = 0;
  double data_wait_seconds = 0;
  double residual_seconds = 0;  // whatever the others do not explain
  // Waiting within a layer.
  double exposed_tp_seconds = 0;
  double exposed_cp_seconds = 0;
  // Waiting for a pipeline's message that was under way, and handing one to the
  // transport.
  double exposed_pp_seconds = 0;

  double ExposedSeconds() const;  // along all axes
  double Total() const;
  void Add(const LedgerParts& other, double share = 1);
};

struct ExposedAxis {
  const char* axis;
  double LedgerParts::*seconds;
};

// Exposed communication by the axis of the mesh.
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
  // Where a process runs several stages on devices of its own, the stage, and
  // there is one of these per stage; -1 elsewhere.
  int64_t stage = -1;
  LedgerParts parts = {};   // means over the steps after warm-up
  double busy_seconds = 0;  // median over them of compute_seconds
};

// What a rank communicates along one axis of the mesh in a step: means over the
// ranks.
struct AxisCommunication {
  // Gradients are of "dp", also where the ranks of dp and cp average them
  // together. "all": among all ranks, where no one axis has them all.
  std::string axis;
  // Over the steps whose traffic was recorded (--traffic_steps).
  double calls = 0;  // collectives, and messages that were sent
  double bytes = 0;  // of their buffers
  // Time spent waiting in communication, including for late ranks (unlike the
  // critical rank's exposed communication); over the steps after warm-up.
  double wait_seconds = 0;
};

struct Ledger {
  std::vector<RankLedger> ranks;  // by rank, then stage
  // Of the axes in use, in the order of kExposedAxes; none where no traffic was
  // recorded.
  std::vector<AxisCommunication> communication;
  // The job's mean step (JobStepSeconds), as its critical ranks spent it: in
  // every step the one that waited least for the others, so that they waited
  // for it. By how much it was late from the step before, after the waiting
  // there, is compute.
  LedgerParts critical;
  // critical.compute_seconds beyond the mean over ranks and steps: what the
  // others waited for within the steps, and what the job's longest rank took
  // beyond them where they did not wait for it.
  double imbalance_seconds = 0;
  // Of imbalance_seconds, what is due to chance: the others wait for another
  // rank in another step ("noise" of docs/metrics.md).
  double noise_seconds = 0;
  // Of compute_seconds, in the optimizer; mean over ranks and steps.
  double optimizer_seconds = 0;
  // For replicas in one process, StepRecord::first_device_seconds: means over
  // the steps after warm-up. All but the loss are exposed communication of dp.
  std::map<std::string, double> first_device_seconds;
  // Of compute_seconds, in captured steps, with what they waited for
  // communication; mean over ranks and steps.
  double captured_seconds = 0;
  // Median over ranks and steps of |residual| / step.
  double median_residual_share = 0;
  bool separates_bubble = true;  // false: the records are from before schema
                                 // 1.3, and exposed transfers are in the bubble

  bool IsCaptured() const { return captured_seconds > 0; }

  // Over ranks and steps.
  double MeanComputeSeconds() const {
    return critical.compute_seconds - imbalance_seconds;
  }
};

// Fails, naming the file, where MeasureThroughput does, and where a step lacks
// a schedule record of a stage that other steps have.
absl::StatusOr<Ledger> MeasureLedger(const RunTrace& run,
                                     const ThroughputConfig& config);

// Ledger::communication of a run with these `ranks`.
std::vector<AxisCommunication> MeasureCommunication(
    const RunTrace& run, absl::Span<const RankLedger> ranks);

// A rank, or a stage of a process that runs several.
struct LedgerPlace {
  int64_t rank = 0;
  int64_t stage = -1;                   // as in RankLedger
  std::vector<LedgerParts> steps = {};  // after warm-up, in order
  double optimizer_seconds = 0;         // sum over them
  double captured_seconds = 0;          // likewise
  bool separates_bubble = true;         // as in Ledger
};

// The places of a run's ranks but parameter servers, by rank and stage, all
// with as many steps: those from the `first` on, counted from 0. Expects a run
// that CheckMeasurable accepts. Fails, naming the file, where a step lacks the
// schedule records that the rank's first one has, or has others.
absl::StatusOr<std::vector<LedgerPlace>> ReadPlaces(const RunTrace& run,
                                                    size_t first);

// The expected value of the largest of one draw from each of `samples`, drawn
// independently: exact for the samples' empirical distributions, as the
// distribution function of a maximum is the product of those of its parts
// (David and Nagaraja, Order Statistics, 2003, section 2.1). `samples` holds
// one sample at least, and none is empty.
double ExpectedMaximum(const std::vector<std::vector<double>>& samples);

struct Straggler {
  int64_t rank = 0;
  // Number of runs examined. A single run cannot separate a slow rank from a
  // slow placement of its process.
  size_t runs = 0;
  // Delay in a typical step: the rank's own time, compute and data wait, minus
  // the median of the ranks it is compared with: all others, or in a pipeline
  // those of the same stage in other replicas.
  double seconds = 0;
  // Lower confidence bound of `seconds`, above 0; 95 % simultaneously for all
  // ranks.
  double least_seconds = 0;
  double share = 0;  // `seconds` over the median step time
};

// The slowest rank over all `runs`, which are repetitions of one cell. The
// sample is a rank's delay in each run, as placement changes from run to run;
// for a single run, its delay in each of several batches of steps (batch means:
// Law and Kelton, Simulation Modeling and Analysis, 1991, section 9.5.3).
// Tested by Student's t, with Bonferroni's correction for choosing among the
// ranks. nullopt if the delay may be chance, if it is below 1 % of the step,
// and if a single run is too short for the test.
//
// Fails where MeasureLedger does, and where the runs differ in their ranks.
absl::StatusOr<std::optional<Straggler>> FindStraggler(
    absl::Span<const RunTrace* const> runs, const ThroughputConfig& config);

// The mean of `ledgers`, those of repetitions of one cell, part by part, so
// that the parts still add up. Requires at least one.
Ledger MeanLedger(absl::Span<const Ledger> ledgers);

// A cell of the study with the ledgers of its repetitions.
struct CellLedger {
  const Cell* cell = nullptr;
  Ledger ledger;                         // MeanLedger
  std::vector<Ledger> repetitions = {};  // at least two for intervals
};

enum class LossCause {
  kSmallerBatch,       // the same work is slower in a rank's smaller batches
  kSharedMachine,      // ranks that do not communicate slow each other down
  kCommBesideCompute,  // computing is slower while communication runs
  kCommInGraph,        // of captured steps: it, and waiting for communication
  kExposedTp,          // waiting for communication along the axis tp
  kExposedCp,
  kExposedPp,
  kExposedDp,
  kBubble,     // waiting for other stages
  kImbalance,  // one rank has more to do, or is slower, all the time
  kNoise,      // the slowest of N variable ranks: expected maximum
  kDataWait,
  kRest,
};

struct Loss {
  LossCause cause = LossCause::kRest;
  double seconds = 0;            // of the step; negative: gained
  double efficiency_points = 0;  // of 1; all losses add up to 1 - efficiency
  // 95 %, of `seconds`, from the spread between repetitions; NaN if a cell
  // involved has only one.
  Interval interval = {std::numeric_limits<double>::quiet_NaN(),
                       std::numeric_limits<double>::quiet_NaN()};

  bool IsWithinNoise() const { return interval.low <= 0 && interval.high >= 0; }
};

struct Waterfall {
  const Cell* cell = nullptr;
  const Cell* base = nullptr;
  Scaling scaling = Scaling::kStrong;
  // The step at the peak of every device; NaN where the base's MFU is not
  // known.
  double limit_seconds = std::numeric_limits<double>::quiet_NaN();
  double ideal_seconds = 0;     // base step * work per rank ratio
  double measured_seconds = 0;  // ideal_seconds + sum of losses
  std::vector<Loss> losses;     // in the order of LossCause, zeros left out
  // Causes that could not be separated, and what would separate them: "smaller
  // batches not separated from cores and memory that ranks share, as single on
  // 1 rank was not run with --batch_size=16". Both are then in the first one's
  // loss.
  std::vector<std::string> merged;
};

// "smaller batches", "exposed communication", ...
std::string LossName(LossCause cause);
// One sentence about what to change against it.
std::string Remedy(LossCause cause);

// In addition to `cell` and `base`, `cells` may hold the two that separate
// causes: a cell of the base's trainer, world size and number of hosts whose
// passes hold as many examples as `cell`'s (--batch_size), and one that differs
// from `cell` in skip_communication only. Fails where CheckEfficiency does, and
// where `cell` or `base` has no ledger.
absl::StatusOr<Waterfall> ExplainLoss(absl::Span<const CellLedger> cells,
                                      const CellLedger& base,
                                      const CellLedger& cell, Scaling scaling,
                                      const ComparisonConfig& config = {});

// The ledger against an experiment: the same cell with communication switched
// off. What the step got shorter by should be what the ledger calls exposed
// communication, and what communication slowed computing down by. A pipeline
// still waits for its stages then: of its exposed communication and bubble,
// what went away counts.
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

#endif  // RANKWISE_ANALYSIS_LEDGER_LEDGER_H_
