// One step of training, as a run asks for it and a trainer does it.
#ifndef RANKWISE_TRAINERS_STEP_H_
#define RANKWISE_TRAINERS_STEP_H_

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "parallel/device/later_seconds.h"
#include "parallel/trace/chrome_trace.h"
#include "records/record.h"
#include "samplers/datasets/dataset.h"
#include "trainers/step_clock.h"

namespace rankwise {

struct StepInput {
  int64_t step;  // from 1
  absl::Span<const Batch>
      micro_batches;  // on the worker's device; one without accumulation
  // One per micro-batch, for Model::set_dropout_seed.
  absl::Span<const uint64_t> dropout_seeds;
  double learning_rate;
  StepClock& clock;  // in Phase::kDataWait; the step moves it on
  bool traced;       // wants StepOutcome::trace
  // Traced, or its communication is recorded: the host must see all of it.
  bool watched;
};

struct StepOutcome {
  torch::Tensor loss;  // scalar, detached, mean over this rank's examples
  LaterSeconds exposed_comm_seconds = {};
  double wait_seconds = 0;  // of a pipeline: blocked for messages
  // What a pipeline's executor timed within Phase::kSchedule.
  double forward_seconds = 0, backward_seconds = 0;
  // Within the phases, of a traced step.
  std::vector<TraceSpan> trace = {};
  // What only the device can tell: called once it is past the step, before the
  // record is written. May be null.
  std::function<void(StepRecord&)> complete = {};
};

// One optimizer step: forward, backward, update. May throw; the run reports it.
using StepFunction =
    std::function<absl::StatusOr<StepOutcome>(const StepInput&)>;

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_STEP_H_
