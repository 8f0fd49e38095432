// From many simulated steps to one figure with an interval.

#ifndef ANALYSIS_PREDICTION_STEP_SAMPLES_H_
#define ANALYSIS_PREDICTION_STEP_SAMPLES_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "analysis/stats/statistics.h"

namespace rankwise {

// One recorded step of one rank, or of one replica of a pipeline, with the
// communication of the layout that is asked for.
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

}  // namespace rankwise

#endif  // ANALYSIS_PREDICTION_STEP_SAMPLES_H_
