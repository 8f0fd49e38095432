// What a data-parallel step would take: the trainer's own trace of a step, with
// other costs of its all-reduces.

#ifndef ANALYSIS_PREDICTION_DDP_MODEL_H_
#define ANALYSIS_PREDICTION_DDP_MODEL_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "analysis/run_trace.h"
#include "analysis/throughput.h"

namespace rankwise {

struct ReadyBucket {
  double bytes = 0;
  // Of computing since backward began, when the bucket was handed over.
  double ready_seconds = 0;
};

// One rank's step without its communication.
struct DdpStepTrace {
  double before_backward_seconds = 0;  // data, forward
  double backward_seconds = 0;         // computing only
  double after_backward_seconds = 0;   // optimizer, and what is between steps
  std::vector<ReadyBucket> buckets;    // in the order they are reduced
};

struct DdpStepTimes {
  double step_seconds = 0;
  double exposed_comm_seconds = 0;
};

// Buckets are reduced one after the other, each from when it is ready and the
// one before is done, beside backward; the optimizer waits for all of them.
DdpStepTimes SimulateDdpStep(
    const DdpStepTrace& trace,
    const std::function<double(double bytes)>& all_reduce_seconds);

// Every recorded step's trace, of all ranks: those that have both a step and a
// traffic record. FailedPrecondition, naming the file and the flag
// --traffic_steps, where there are none.
absl::StatusOr<std::vector<DdpStepTrace>> DdpTraces(
    const RunTrace& run, const ThroughputConfig& config);

}  // namespace rankwise

#endif  // ANALYSIS_PREDICTION_DDP_MODEL_H_
