// What a pipeline step reports: at once what it computed, and its times once
// the device is past it.
#ifndef RANKWISE_PARALLEL_PIPELINE_ENGINE_EXECUTOR_STEP_H_
#define RANKWISE_PARALLEL_PIPELINE_ENGINE_EXECUTOR_STEP_H_

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "parallel/device/device_event.h"
#include "parallel/pipeline/simulation/timeline.h"

namespace rankwise {

// How long a rank's computation was blocked for one message: from the end of
// what it did before to the arrival.
struct MessageWait {
  int64_t bytes = 0;
  PendingDuration seconds;
};

// When a rank's device was where in a step. All events are of that device.
struct StepEvents {
  explicit StepEvents(DeviceEvent step_start) : start(std::move(step_start)) {}

  DeviceEvent start;
  std::optional<DeviceEvent> end;
  // Start and end of each of the step's spans.
  std::vector<std::pair<std::optional<DeviceEvent>, std::optional<DeviceEvent>>>
      spans;
};

// What one Run did on one rank. Nothing here makes the host wait but Read and
// the waits' seconds; a step that is dropped unread costs only its events.
struct ExecutorStep {
  at::Tensor loss;  // scalar fp32, detached: the sum of all shares, on every
                    // rank of the pipeline
  // This rank's actions, whose times Read fills in: of the host's steady clock,
  // in seconds, and of when the device computed, not of when it was told to.
  // Sends and receives run from issue until somebody has waited for them.
  std::vector<Span> spans;
  double start_seconds = 0, end_seconds = 0;  // of Run, filled in by Read
  std::vector<MessageWait> waits;  // blocked for messages, the loss among them
  int peak_activations = 0;        // as in ScheduleFacts, counted as it ran
  int64_t sent_bytes = 0, received_bytes = 0;
  std::optional<StepEvents> events;  // none once the times have been read

  bool has_times() const { return !events.has_value(); }

  // Whether the device is past the step, so that Read does not block. Never
  // blocks.
  bool reached() const { return has_times() || events->end->reached(); }

  // Fills in the times, unless they are there; blocks until the device is past
  // the step. `anchor`, of the step's device, says where the step stands on the
  // host's clock; within the step only the device's clock counts, whose drift
  // and rounding do not matter there.
  void Read(const HostAnchor& anchor);

  // The sum of `waits`.
  double wait_seconds() const;
};

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_PIPELINE_ENGINE_EXECUTOR_STEP_H_
