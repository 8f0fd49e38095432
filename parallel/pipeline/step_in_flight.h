// A pipeline step that was given to a device and may not have run yet.
#ifndef RANKWISE_PARALLEL_PIPELINE_STEP_IN_FLIGHT_H_
#define RANKWISE_PARALLEL_PIPELINE_STEP_IN_FLIGHT_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "ATen/core/Tensor.h"
#include "parallel/device/moment.h"
#include "parallel/pipeline/actions.h"
#include "parallel/pipeline/executor_step.h"

namespace rankwise {

// Both moments are of the rank's device.
struct TimedAction {
  Action action;
  std::optional<Moment> start, end;
};

// A message that the rank's computation waited for, from the end of what it
// did before to the arrival.
struct TimedWait {
  int64_t bytes = 0;
  Moment start, end;
};

// One rank's step: the loss can be computed with at once, the times can be read
// once the device has come so far. Nothing here makes the host wait. Thrown
// away unread it costs nothing but its events.
struct StepInFlight {
  at::Tensor loss;  // as in ExecutorStep
  std::vector<TimedAction> actions;
  std::optional<Moment> start, end;
  std::vector<TimedWait> waits;
  int peak_activations = 0;
  int64_t sent_bytes = 0, received_bytes = 0;

  // Whether the device is past the step. Never blocks.
  bool reached() const { return end->reached(); }
  // After `reached`. `anchor`, of the step's device, says where the step stands
  // on the host's clock; within the step only the device's clock counts. On a
  // CPU the anchor is not read.
  ExecutorStep Read(const HostAnchor& anchor) const;
};

// Tells the moments of one device on the host's clock: from an anchor to a
// moment near them, and from there by the device's clock alone, whose drift and
// rounding do not matter within a step.
class NearMoments {
 public:
  // `near` is reached. On a CPU the anchor is not read.
  NearMoments(const Moment& near, const HostAnchor& anchor);

  // In seconds of the steady clock. Throws before `moment` is reached.
  double HostSeconds(const Moment& moment) const;

 private:
  const Moment& near_;
  std::optional<double> near_seconds_;  // none on a CPU
};

// Blocks until the device is past the step, and reads it.
ExecutorStep WaitFor(const StepInFlight& step);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_PIPELINE_STEP_IN_FLIGHT_H_
