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
  // A tensor in it is at least so large: what the bucket has beyond the limit
  // at which the Reducer closes it.
  double tensor_bytes = 0;
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
// one before is done, beside backward; the optimizer waits for all of them (Li
// et al., "PyTorch Distributed", VLDB 2020, section 3.2). So do NCCL and the
// fake backend. Gloo runs two calls at a time: as they share what one would
// have alone, the last one ends at the same moment; only their latencies may
// overlap, so many small buckets take at most as long as said here.
DdpStepTimes SimulateDdpStep(
    const DdpStepTrace& trace,
    const std::function<double(double bytes)>& all_reduce_seconds);

// Every recorded step's trace, of all ranks: those that have both a step and a
// traffic record with an all-reduce in backward. A bucket is ready when its
// all-reduce was started, less what all-reduces in backward's own thread
// (--direct_all_reduce_bytes) took before. Steps of the warm-up count where no
// other was recorded. FailedPrecondition, naming the file and the flag
// --traffic_steps, where there are none.
absl::StatusOr<std::vector<DdpStepTrace>> DdpTraces(
    const RunTrace& run, const ThroughputConfig& config);

// The same gradients in buckets of `bucket_bytes` (above 0), as the Reducer
// fills them: neighbours are joined until so many bytes are reached, which is
// exact, and larger ones are cut into equal pieces, as if their gradients had
// arrived evenly since the bucket before, but into none that is smaller than a
// tensor that is known to be in it.
std::vector<ReadyBucket> Rebucket(absl::Span<const ReadyBucket> buckets,
                                  double bucket_bytes);

}  // namespace rankwise

#endif  // ANALYSIS_PREDICTION_DDP_MODEL_H_
