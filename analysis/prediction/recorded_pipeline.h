// What runs of pipelines say about their stages.

#ifndef ANALYSIS_PREDICTION_RECORDED_PIPELINE_H_
#define ANALYSIS_PREDICTION_RECORDED_PIPELINE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "analysis/run_trace.h"
#include "analysis/throughput.h"
#include "parallel/pipeline/simulate.h"

namespace rankwise {

// One step of one replica, as it was measured.
struct RecordedStages {
  // Means over micro-batches; kinds that the schedule has not are 0. The
  // backward of a schedule that cuts it is the sum of its halves.
  std::vector<StageCosts> stages;
  // From the first start to the last end, of the rank where that is longest.
  double span_seconds = 0;
};

struct RecordedPipeline {
  std::string source;
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
  std::vector<double> peak_bytes;         // [pp], 0: not known
  std::vector<int64_t> peak_activations;  // [pp]
};

// Runs of `runs` (as PredictableRuns gives them) with one rank per process and
// measured timelines of all stages, whose records agree on who sits where in
// the pipeline; others are passed over. The timelines say
// how a rank's computing divides over its actions, its schedule records how
// much there was in each step after warm-up.
std::vector<RecordedPipeline> CollectPipelines(
    absl::Span<const RunTrace* const> runs, const ThroughputConfig& config);

}  // namespace rankwise

#endif  // ANALYSIS_PREDICTION_RECORDED_PIPELINE_H_
