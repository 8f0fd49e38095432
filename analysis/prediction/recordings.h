// What predictions are made from: what a study's runs say about computing,
// buckets of gradients and the stages of pipelines, and the steps of a layout,
// simulated one by one from that.
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

// Whether the run's trainer can be predicted: ddp, model_parallel or pipeline.
bool IsPredictable(const RunRecord& run);

// ddp's all-reduces over several hosts were hierarchical.
bool IsHierarchical(const RunRecord& run);

// The backend `fake` pretends its ranks: they are rank 0's mirror images, share
// no cores, and are never late.
bool IsFake(const RunTrace& run);

// A run of the backend `fake` has the records of rank 0 alone; with those of
// its mirror images it is complete for CheckRun. Other runs stay as they are.
RunTrace MirrorFakeRanks(RunTrace run);

// The runs of --records=PATH, with the mirror images of fake ranks. Names torn
// lines on the standard error. InvalidArgument where they cannot be read.
absl::StatusOr<std::vector<RunTrace>> LoadRecordings(const std::string& path);

// Examples of a rank's step; of a pipeline, of a replica's step. Median.
double ExamplesPerStep(const RunTrace& run, const ThroughputConfig& config);

// The runs of predictable trainers that can be measured and whose steps were
// not captured. FailedPrecondition, naming the flag and two files, where they
// did not train the same thing, and where all were captured.
absl::StatusOr<std::vector<const RunTrace*>> PredictableRuns(
    absl::Span<const RunTrace> runs, const ThroughputConfig& config);

struct ReadyBucket {
  double bytes = 0;
  // Of computing since backward began, when the bucket was handed over.
  double ready_seconds = 0;
  // The least size of its largest tensor: what the bucket has beyond the limit
  // at which the Reducer closes it.
  double tensor_bytes = 0;
};

// The computing of one rank's step.
struct ComputeParts {
  double before_backward_seconds = 0;  // data, forward
  double backward_seconds = 0;         // until the last bucket is ready
  double after_backward_seconds = 0;   // optimizer, and what is between steps
};

inline constexpr double ComputeParts::*kComputeParts[] = {
    &ComputeParts::before_backward_seconds, &ComputeParts::backward_seconds,
    &ComputeParts::after_backward_seconds};

// One rank's step without its communication.
struct DdpStepTrace : ComputeParts {
  std::vector<ReadyBucket> buckets;  // in the order they are reduced
};

// Every recorded step's trace, of all ranks: those that have both a step and a
// traffic record with an all-reduce in backward. A bucket is ready when its
// all-reduce was started. Steps of the warm-up count where no other was
// recorded. FailedPrecondition, naming the file and the flag --traffic_steps,
// where there are none.
absl::StatusOr<std::vector<DdpStepTrace>> DdpTraces(
    const RunTrace& run, const ThroughputConfig& config);

// The same gradients in buckets of `bucket_bytes` (above 0), as the Reducer
// fills them: neighbours are joined until they reach `bucket_bytes`; larger
// ones are cut into equal pieces, as if their gradients had arrived evenly
// since the bucket before, but into none smaller than a tensor known to be in
// it.
std::vector<ReadyBucket> Rebucket(absl::Span<const ReadyBucket> buckets,
                                  double bucket_bytes);

struct RecordedDdp {
  std::string source;
  int64_t world_size = 1;
  int64_t hosts = 1;
  double batch = 0;  // examples of a rank's step
  bool skips_communication = false;
  bool hierarchical = false;
  bool fake = false;
  std::vector<ComputeParts> steps;  // of all ranks, after warm-up; not empty
  double step_seconds = 0;          // as measured: Throughput::step_seconds
  double peak_bytes = 0;            // of the fullest rank; 0: not known
};

// The buckets of one run that recorded its traffic: medians over its steps.
struct BucketPlan {
  int64_t world_size = 1;
  double batch = 0;
  std::vector<ReadyBucket> buckets;  // ready as a share of backward_seconds
  double tail_seconds = 0;     // after the last all-reduce, still in backward
  double broadcast_bytes = 0;  // of buffers, before forward
};

struct DdpRecordings {
  std::vector<RecordedDdp> runs;
  std::vector<BucketPlan> plans;
};

// `runs` as PredictableRuns gives them; those of other trainers are skipped.
// FailedPrecondition where some ran ddp and none recorded its traffic.
absl::StatusOr<DdpRecordings> CollectDdp(absl::Span<const RunTrace* const> runs,
                                         const ThroughputConfig& config);

// The plan of the batch next to `batch`, of the most ranks up to `world_size`,
// else of the fewest. `plans` is not empty.
const BucketPlan& NearestPlan(absl::Span<const BucketPlan> plans, double batch,
                              int64_t world_size);

// One step of one replica, as it was measured.
struct RecordedStages {
  // Means over micro-batches; kinds that the schedule has not are 0. The
  // backward of a schedule that cuts it is the sum of its halves.
  std::vector<StageCosts> stages;
  // From the first start to the last end, of the rank where that is longest.
  double span_seconds = 0;
};

struct RecordedPipeline {
  std::string schedule;
  int64_t pp = 1;
  int64_t dp = 1;
  int64_t stages = 1;
  int64_t micro_batches = 1;
  double micro_batch_examples = 0;
  bool cuts_backward = false;         // into I and W
  std::vector<RecordedStages> steps;  // not empty
  // Of each pipeline rank, of a step: what it spends outside its schedule and
  // without waiting for the other replicas' gradients; median.
  std::vector<double> outside_seconds;    // [pp]
  std::vector<double> optimizer_seconds;  // [pp], medians
  // Each rank's all-reduces over the replicas, in order of start; empty where
  // there was one replica, or no traffic was recorded.
  std::vector<std::vector<double>> gradient_bytes;  // [pp]
  double message_seconds = 0;  // by the trainer's own measurement of its link
  double step_seconds = 0;     // Throughput::step_seconds; 0: not known
  std::vector<double> peak_bytes;         // [pp], 0: not known
  std::vector<int64_t> peak_activations;  // [pp]
};

// Runs of `runs` (as PredictableRuns gives them) with one rank per process and
// measured timelines of all stages, whose records agree on who sits where in
// the pipeline; others are skipped. The timelines say
// how a rank's computing divides over its actions, its schedule records how
// much there was in each step after warm-up.
std::vector<RecordedPipeline> CollectPipelines(
    absl::Span<const RunTrace* const> runs, const ThroughputConfig& config);

// The times of one simulated step.
struct StepTimes {
  double step_seconds = 0;
  double exposed_comm_seconds = 0;
  double bubble_seconds = 0;
};

// One recorded step of one rank, or of one replica of a pipeline, with the
// communication of the requested layout: at its estimated cost, and at both
// ends of that cost's 95 % interval.
struct StepSample {
  StepTimes middle, low, high;
};

// An end of a cost's 95 % interval, or the estimate itself.
enum class CostSide { kLow, kMiddle, kHigh };

double SecondsAt(const CostEstimate& cost, CostSide side);

// The model's error on recorded configurations, as a share of the step.
struct ModelError {
  int configurations = 0;  // number that it was tested on
  double deviation = 0;    // root mean square of predicted / measured - 1
  // The number of configurations; one less if each is predicted from the
  // others, as the errors of two are then equal and opposite.
  int degrees_of_freedom = 0;
};

struct StepEstimate : StepTimes {  // medians
  Interval step_interval = {};     // of the median step of a future run
  // What the slowest of the ranks adds to the median of one.
  double noise_seconds = 0;
};

// The median step of `ranks` (or replicas) that wait for each other, each as
// variable from step to step as the samples of its run: the median of the
// largest of n is the 0.5^(1/n) quantile of one. `runs`: one list of samples
// per run, none of them empty.
//
// The interval is defined in docs/prediction.md and includes `error`.
StepEstimate EstimateStep(absl::Span<const std::vector<StepSample>> runs,
                          int64_t ranks, const ModelError& error = {});

struct SimulatedLayout {
  std::vector<std::vector<StepSample>> runs;  // per run that was recorded
  int64_t waiting = 1;  // ranks or replicas that wait for the slowest
  // Of a step, the median: exposed communication beyond that of as many ranks
  // on one host, or, where that is not known, all of it if every rank has a
  // host of its own. 0 where all are on one, or where neither is known.
  double link_seconds = 0;
  double peak_bytes = 0;
  // Extrapolations beyond the measurements, one line each.
  std::vector<std::string> extrapolations;
  std::vector<std::string> assumptions;
  std::set<std::string> conditions;  // of the costs: CostEstimate::conditions
};

// Where a layout's computing comes from.
struct ComputeSource {
  std::vector<const RecordedDdp*> runs;  // repetitions of one cell
  // Of the runs' parts, for a batch that was not run.
  ComputeParts factors = {1, 1, 1};
  std::vector<std::string> extrapolations;  // as in SimulatedLayout
  std::vector<std::string> assumptions;
};

// The runs whose computing is most like that of `world_size` ranks with `batch`
// examples each, `ranks_per_host` of which share a host (0: all): those of as
// many ranks on a host; else of the most below; else of the fewest. At one
// world size, runs that communicate come before those with
// --skip_communication. A batch between or beyond those recorded follows a line
// through them; FailedPrecondition, with the command, where there is only one.
absl::StatusOr<ComputeSource> FindCompute(const DdpRecordings& recordings,
                                          double batch, int64_t world_size,
                                          int64_t ranks_per_host = 0);

// Buckets are reduced one after the other, each from when it is ready and the
// one before is done, during backward; the optimizer waits for all of them (Li
// et al., "PyTorch Distributed", VLDB 2020, section 3.2; docs/prediction.md for
// backends that run several at a time). `all_reduce_seconds`: of each bucket.
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

#endif  // RANKWISE_ANALYSIS_PREDICTION_RECORDINGS_H_
