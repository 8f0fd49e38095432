// The basis of predictions: computation, gradient buckets and pipeline stages
// extracted from a study's runs, and the steps of a layout simulated from them.
#ifndef RANKWISE_ANALYSIS_PREDICTION_RECORDINGS_H_
#define RANKWISE_ANALYSIS_PREDICTION_RECORDINGS_H_

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "analysis/cost_model/network_model.h"
#include "analysis/prediction/layout.h"
#include "analysis/runs/run_trace.h"
#include "analysis/runs/throughput.h"
#include "analysis/stats/statistics.h"
#include "parallel/pipeline/simulation/simulate.h"

namespace rankwise {

// Whether the run's trainer is predictable: ddp, model_parallel or pipeline.
bool IsPredictable(const RunRecord& run);

// Whether ddp's all-reduces over several hosts were hierarchical.
bool IsHierarchical(const RunRecord& run);

// Whether the backend is `fake`, which simulates all ranks but rank 0: they
// mirror rank 0, share no cores, and are never late.
bool IsFake(const RunTrace& run);

// Completes a run of the backend `fake`, which has only the records of rank 0,
// with mirrored ranks, so that CheckRun accepts it. Returns other runs
// unchanged.
RunTrace MirrorFakeRanks(RunTrace run);

// Reads the runs of --records=PATH and mirrors fake ranks. Prints torn lines to
// the standard error. InvalidArgument if they cannot be read.
absl::StatusOr<std::vector<RunTrace>> LoadRecordings(const std::string& path);

// Returns the median examples per step of a rank; of a pipeline, of a replica.
double ExamplesPerStep(const RunTrace& run, const ThroughputConfig& config);

// Returns the measurable runs of predictable trainers whose steps were not
// captured. FailedPrecondition if they did not train the same model in the same
// way (the message names the flag and two files), or if all were captured.
absl::StatusOr<std::vector<const RunTrace*>> PredictableRuns(
    absl::Span<const RunTrace> runs, const ThroughputConfig& config);

struct ReadyBucket {
  double bytes = 0;
  // computation time from the start of backward until the bucket is ready
  double ready_seconds = 0;
  // Lower bound of the size of the bucket's largest tensor: the excess over the
  // limit at which the Reducer closes a bucket.
  double tensor_bytes = 0;
};

// Computation of one rank's step.
struct ComputeParts {
  double before_backward_seconds = 0;  // data loading and forward
  double backward_seconds = 0;         // until the last bucket is ready
  double after_backward_seconds = 0;   // optimizer, and time between steps
};

inline constexpr double ComputeParts::*kComputeParts[] = {
    &ComputeParts::before_backward_seconds, &ComputeParts::backward_seconds,
    &ComputeParts::after_backward_seconds};

// One rank's step without its communication.
struct DdpStepTrace : ComputeParts {
  std::vector<ReadyBucket> buckets;  // in the order of their reduction
};

// Returns the traces of all ranks' steps that have both a step record and a
// traffic record with an all-reduce in backward. A bucket is ready when its
// all-reduce starts. Uses warm-up steps only if no others were recorded.
// FailedPrecondition, naming the file and the flag --traffic_steps, if there
// are none.
absl::StatusOr<std::vector<DdpStepTrace>> DdpTraces(
    const RunTrace& run, const ThroughputConfig& config);

// Regroups gradients into buckets of `bucket_bytes` (above 0), as the Reducer
// does: joins neighbours until they reach `bucket_bytes`; splits larger buckets
// into equal pieces, as if their gradients had arrived evenly since the
// previous bucket, but into none smaller than a tensor known to be in it.
std::vector<ReadyBucket> Rebucket(absl::Span<const ReadyBucket> buckets,
                                  double bucket_bytes);

struct RecordedDdp {
  std::string source;
  int64_t world_size = 1;
  int64_t hosts = 1;
  double batch = 0;  // examples per rank and step
  bool skips_communication = false;
  bool hierarchical = false;
  bool fake = false;
  std::vector<ComputeParts> steps;  // of all ranks, after warm-up; not empty
  double step_seconds = 0;          // measured: Throughput::step_seconds
  double peak_bytes = 0;            // of the fullest rank; 0 if unknown
};

// Buckets of one run with recorded traffic: medians over its steps.
struct BucketPlan {
  int64_t world_size = 1;
  double batch = 0;
  // ready_seconds as a fraction of backward_seconds
  std::vector<ReadyBucket> buckets;
  double tail_seconds = 0;     // after the last all-reduce, within backward
  double broadcast_bytes = 0;  // buffers broadcast before forward
};

struct DdpRecordings {
  std::vector<RecordedDdp> runs;
  std::vector<BucketPlan> plans;
};

// Requires the result of PredictableRuns; skips other trainers.
// FailedPrecondition if some runs are of ddp, but none recorded its traffic.
absl::StatusOr<DdpRecordings> CollectDdp(absl::Span<const RunTrace* const> runs,
                                         const ThroughputConfig& config);

// Returns a plan with the batch nearest to `batch`: the one with the most ranks
// up to `world_size`, else with the fewest. `plans` must not be empty.
const BucketPlan& NearestPlan(absl::Span<const BucketPlan> plans, double batch,
                              int64_t world_size);

// One measured step of one replica.
struct RecordedStages {
  // Means over micro-batches; kinds that the schedule lacks are 0. The backward
  // of a schedule that splits it is the sum of its halves.
  std::vector<StageCosts> stages;
  // from the first start to the last end, of the rank with the longest span
  double span_seconds = 0;
};

struct RecordedPipeline {
  std::string schedule;
  int64_t pp = 1;
  int64_t dp = 1;
  int64_t stages = 1;
  int64_t micro_batches = 1;
  double micro_batch_examples = 0;
  bool cuts_backward = false;         // split into I and W
  std::vector<RecordedStages> steps;  // not empty
  // per pipeline rank and step, time outside the schedule, without waiting for
  // the other replicas' gradients; median
  std::vector<double> outside_seconds;    // [pp]
  std::vector<double> optimizer_seconds;  // [pp], medians
  // Each rank's all-reduces over the replicas, in order of start; empty with
  // one replica or without recorded traffic.
  std::vector<std::vector<double>> gradient_bytes;  // [pp]
  double message_seconds = 0;      // from the trainer's measurement of its link
  double step_seconds = 0;         // Throughput::step_seconds; 0 if unknown
  std::vector<double> peak_bytes;  // [pp], 0 if unknown
  std::vector<int64_t> peak_activations;  // [pp]
};

// Extracts the pipelines from the result of PredictableRuns. Skips runs unless
// they have one rank per process and measured timelines of all stages, and
// their records agree on the position of each rank. The timelines determine how
// a rank's computation is distributed over its actions, the schedule records
// its amount in each step after warm-up.
std::vector<RecordedPipeline> CollectPipelines(
    absl::Span<const RunTrace* const> runs, const ThroughputConfig& config);

// Times of one simulated step.
struct StepTimes {
  double step_seconds = 0;
  double exposed_comm_seconds = 0;
  double bubble_seconds = 0;
};

// One recorded step of a rank, or of a replica of a pipeline, with the
// communication of the requested layout at its estimated cost, and at both ends
// of that cost's 95 % interval.
struct StepSample {
  StepTimes middle, low, high;
};

// An end of a cost's 95 % interval, or the estimate.
enum class CostSide { kLow, kMiddle, kHigh };

double SecondsAt(const CostEstimate& cost, CostSide side);

// The model's relative error of the step on recorded configurations.
struct ModelError {
  int configurations = 0;  // number of configurations tested
  double deviation = 0;    // root mean square of predicted / measured - 1
  // Number of configurations; one less if each is predicted from the others, as
  // the errors of two are then equal and opposite.
  int degrees_of_freedom = 0;
};

struct StepEstimate : StepTimes {  // medians
  Interval step_interval = {};     // of the median step of a future run
  // the slowest rank's excess over the median rank
  double noise_seconds = 0;
};

// Estimates the median step of `ranks` (or replicas) that wait for each other
// and vary between steps like the samples of a run: the median of the maximum
// of n is the 0.5^(1/n) quantile of one. `runs` has one non-empty list of
// samples per run.
//
// docs/prediction.md defines the interval, which includes `error`.
StepEstimate EstimateStep(absl::Span<const std::vector<StepSample>> runs,
                          int64_t ranks, const ModelError& error = {});

struct SimulatedLayout {
  std::vector<std::vector<StepSample>> runs;  // per recorded run
  int64_t waiting = 1;  // number of ranks or replicas that wait for the slowest
  // Median per step of the exposed communication beyond that of as many ranks
  // on one host; if that is unknown, all exposed communication if every rank
  // has its own host. 0 if all ranks are on one host, or if neither is known.
  double link_seconds = 0;
  double peak_bytes = 0;
  // extrapolations beyond the measurements, one line each
  std::vector<std::string> extrapolations;
  std::vector<std::string> assumptions;
  // of the costs, as CostEstimate::conditions
  std::set<std::string> conditions;
};

// The source of a layout's computation.
struct ComputeSource {
  std::vector<const RecordedDdp*> runs;  // repetitions of one cell
  // scale of the runs' parts, for a batch that was not recorded
  ComputeParts factors = {1, 1, 1};
  std::vector<std::string> extrapolations;  // as in SimulatedLayout
  std::vector<std::string> assumptions;
};

// Returns the runs whose computation is most similar to that of `world_size`
// ranks with `batch` examples each, `ranks_per_host` of which share a host (0:
// all): those with as many ranks per host; else the most below; else the
// fewest. At one world size, prefers runs with communication to those with
// --skip_communication. For other batches, fits a line through the recorded
// ones; FailedPrecondition, with the command to run, if there is only one.
absl::StatusOr<ComputeSource> FindCompute(const DdpRecordings& recordings,
                                          double batch, int64_t world_size,
                                          int64_t ranks_per_host = 0);

// Simulates the reduction of buckets during backward, one after the other, each
// starting when it is ready and the previous one is done; the optimizer waits
// for all of them (Li et al., "PyTorch Distributed", VLDB 2020, section 3.2;
// docs/prediction.md for backends that run several at a time).
// `all_reduce_seconds` has one value per bucket.
StepTimes SimulateDdpStep(const DdpStepTrace& trace,
                          absl::Span<const double> all_reduce_seconds);

// Fails if FindCompute or the network's Estimate does, or if no run of ddp was
// recorded.
absl::StatusOr<SimulatedLayout> SimulateDdpLayout(
    const DdpRecordings& recordings, const Layout& layout,
    const NetworkModel& network);

// Returns the step of a pipeline with the computation of `timeline`. After its
// schedule, a rank waits for the averages of its stages' gradients over the
// replicas, each starting when the stage's last gradient is ready and the
// previous average is done, then spends `outside` seconds; its next step begins
// as long after the first rank's as this one did. The result is that of the
// rank with the longest step. `scale` stretches the timeline, but not its
// computation: the difference is bubble.
StepTimes PipelineStep(const Timeline& timeline, double scale,
                       const std::vector<std::vector<double>>& all_reduce,
                       absl::Span<const double> outside);

// FailedPrecondition, with the command that records the missing run, if no
// timeline fits: with as many stages on as many ranks, equal micro-batches, and
// a split backward if the schedule splits it. `gradient_bytes` is that of the
// whole model, for replicas without recorded traffic; 0 if unknown.
absl::StatusOr<SimulatedLayout> SimulatePipelineLayout(
    absl::Span<const RecordedPipeline> recordings, const Layout& layout,
    double gradient_bytes, const NetworkModel& network);

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_PREDICTION_RECORDINGS_H_
