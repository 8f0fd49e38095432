// A layout's steps, simulated one by one from what was recorded, and what
// follows from them.
#ifndef RANKWISE_ANALYSIS_PREDICTION_SIMULATED_LAYOUT_H_
#define RANKWISE_ANALYSIS_PREDICTION_SIMULATED_LAYOUT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "analysis/cost_model/network_model.h"
#include "analysis/prediction/prediction.h"
#include "analysis/prediction/recordings.h"
#include "analysis/stats/statistics.h"
#include "parallel/pipeline/simulation/simulate.h"

namespace rankwise {

// One recorded step of one rank, or of one replica of a pipeline, with the
// communication of the requested layout.
struct StepSample {
  double seconds = 0;
  // With communication as cheap, and as dear, as its 95 % interval says.
  double low_seconds = 0;
  double high_seconds = 0;
  double exposed_comm_seconds = 0;
  double bubble_seconds = 0;
};

struct StepEstimate {
  double seconds = 0;
  Interval interval;  // 95 %, of the median step of a run that is to come
  double exposed_comm_seconds = 0;  // medians
  double bubble_seconds = 0;
  // What the slowest of the ranks adds to the median of one.
  double noise_seconds = 0;
};

// The median step of `ranks` (or replicas) that wait for each other, each as
// variable from step to step as the samples of its run: the median of the
// largest of n is the 0.5^(1/n) quantile of one. `runs`: one list of samples
// per run, none of them empty.
//
// The interval holds what the samples of the steps leave open (bootstrap), what
// the costs of communication do, how far a new run lies from those that were
// recorded (Student's t with one degree less than there are runs; of one run it
// is not known), and the model's own error: `model_deviation` is its standard
// deviation as a share of the step.
StepEstimate EstimateStep(absl::Span<const std::vector<StepSample>> runs,
                          int64_t ranks, double model_deviation = 0);

struct SimulatedLayout {
  std::vector<std::vector<StepSample>> runs;  // per run that was recorded
  int64_t waiting = 1;  // ranks or replicas that wait for the slowest
  double peak_bytes = 0;
  bool extrapolated = false;
  std::vector<std::string> assumptions;
};

// Which end of a cost's 95 % interval.
enum class CostSide { kLow, kMiddle, kHigh };
inline constexpr CostSide kCostSides[] = {CostSide::kLow, CostSide::kMiddle,
                                          CostSide::kHigh};

double SecondsAt(const CostEstimate& cost, CostSide side);

// Of one step, with communication at one side of its interval.
struct StepTimes {
  double step_seconds = 0;
  double exposed_comm_seconds = 0;
  double bubble_seconds = 0;
};

StepSample SampleOf(const StepTimes& low, const StepTimes& middle,
                    const StepTimes& high);

// Where a layout's computing comes from.
struct ComputeSource {
  std::vector<const RecordedDdp*> runs;  // repetitions of one cell
  // Of the runs' parts, for a batch that was not run.
  ComputeParts factors = {1, 1, 1};
  bool extrapolated = false;
  std::vector<std::string> assumptions;
};

// The runs whose computing is most like that of `world_size` ranks with `batch`
// examples each: those of as many ranks; else of the most ranks below; else of
// the fewest. At one world size, runs that communicate come before those with
// --skip_communication. A batch between or beyond those recorded follows a line
// through them; FailedPrecondition, with the command, where there is only one.
absl::StatusOr<ComputeSource> FindCompute(const DdpRecordings& recordings,
                                          double batch, int64_t world_size);

// Buckets are reduced one after the other, each from when it is ready and the
// one before is done, during backward; the optimizer waits for all of them (Li
// et al., "PyTorch Distributed", VLDB 2020, section 3.2). So do NCCL and the
// fake backend. Gloo runs two calls at a time: as they share what one would
// have alone, the last one ends at the same moment; only their latencies may
// overlap, so many small buckets take at most as long as said here.
// `all_reduce_seconds`: of each bucket.
StepTimes SimulateDdpStep(const DdpStepTrace& trace,
                          absl::Span<const double> all_reduce_seconds);

// Fails as FindCompute and the network's Estimate do, and where no run of ddp
// was recorded.
absl::StatusOr<SimulatedLayout> SimulateDdpLayout(
    const DdpRecordings& recordings, const Layout& layout,
    const NetworkModel& network);

// The step of a pipeline whose computation ran as `timeline` says. A rank that
// has left its schedule waits for the averages of its stages' gradients over
// the replicas, each started when the stage's last gradient was there and the
// average before is done, and then does what is `outside` the schedule; then
// its next step may begin, as long after that of the first rank as this one
// did. The step and its parts are those of the rank that takes longest. `scale`
// stretches the timeline, but not the computing in it: what it adds is bubble.
StepTimes PipelineStep(const Timeline& timeline, double scale,
                       const std::vector<std::vector<double>>& all_reduce,
                       absl::Span<const double> outside);

// FailedPrecondition, with the command that would record what is missing, where
// no timeline fits: of as many stages on as many ranks, micro-batches as large,
// and a backward that is cut where the schedule cuts it. `gradient_bytes`: of
// the whole model, for replicas whose traffic was not recorded; 0: not known.
absl::StatusOr<SimulatedLayout> SimulatePipelineLayout(
    absl::Span<const RecordedPipeline> recordings, const Layout& layout,
    double gradient_bytes, const NetworkModel& network);

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_PREDICTION_SIMULATED_LAYOUT_H_
