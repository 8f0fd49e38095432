// What a pipeline step reports.
#ifndef RANKWISE_PARALLEL_PIPELINE_EXECUTOR_STEP_H_
#define RANKWISE_PARALLEL_PIPELINE_EXECUTOR_STEP_H_

#include <cstdint>
#include <vector>

#include "ATen/core/Tensor.h"
#include "parallel/pipeline/timeline.h"

namespace rankwise {

// How long a rank was blocked for one message.
struct MessageWait {
  int64_t bytes = 0;
  double seconds = 0;
};

// What one Run did on this rank.
struct ExecutorStep {
  at::Tensor loss;  // scalar fp32, detached: the sum of all shares, on every
                    // rank of the pipeline
  // This rank's actions. Times are of the host's steady clock, in seconds, and
  // say when the device computed, not when it was told to. Sends and receives
  // run from issue until somebody has waited for them.
  std::vector<Span> spans;
  double start_seconds = 0, end_seconds = 0;  // of Run, on the same clock
  std::vector<MessageWait> waits;  // blocked for messages, the loss among them
  int peak_activations = 0;        // as in ScheduleFacts, counted as it ran
  int64_t sent_bytes = 0, received_bytes = 0;

  double wait_seconds() const {
    double sum = 0;
    for (const MessageWait& wait : waits) sum += wait.seconds;
    return sum;
  }
};

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_PIPELINE_EXECUTOR_STEP_H_
