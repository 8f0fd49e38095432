// Turns finished steps into records, without making the host wait for the
// device at every step.
#ifndef RANKWISE_TRAINERS_OBSERVE_STEP_LOG_H_
#define RANKWISE_TRAINERS_OBSERVE_STEP_LOG_H_

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "parallel/device/device_event.h"
#include "records/record.h"
#include "records/record_writer.h"
#include "trainers/observe/step_clock.h"

namespace rankwise {

// A step that was submitted to the device and may not have run yet.
struct PendingStep {
  // What the clock, the loss and the fields below do not know.
  StepRecord record;
  torch::Tensor loss;  // scalar on the device
  StepClock clock;     // after Begin(Phase::kEnd)
  // Complete but for step_seconds and what exposed_comm adds.
  std::optional<TrafficRecord> traffic = {};
  PendingDuration exposed_comm = {};
  // Adds what only the device can tell to the record; may be null.
  std::function<void(StepRecord&)> complete = {};
};

// Sums over the steps of the current epoch that were flushed.
struct EpochSums {
  double loss = 0;  // weighted by examples
  int64_t examples = 0;
};

// The host waits for the device in Flush and nowhere else.
class StepLog {
 public:
  // `writer` null: the steps are only summed.
  StepLog(torch::Device device, RecordWriter* writer)
      : device_(device), writer_(writer) {}

  // Keeps the step until the next Flush. On a CPU there is nothing to wait for:
  // it is flushed at once.
  absl::Status Add(PendingStep step);

  // Waits for the device, reads the losses in one copy, writes the records.
  absl::Status Flush();

  // The loss of the last step that was flushed.
  double last_loss() const { return last_loss_; }
  // The first step of the run whose loss was not a number, or 0.
  int64_t first_non_finite_step() const { return first_non_finite_step_; }

  EpochSums& epoch_sums() { return epoch_sums_; }

 private:
  const torch::Device device_;
  RecordWriter* const writer_;
  std::vector<PendingStep> pending_;
  EpochSums epoch_sums_;
  double last_loss_ = 0;
  int64_t first_non_finite_step_ = 0;
};

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_OBSERVE_STEP_LOG_H_
