// --cuda_graph for a trainer's step.
#ifndef RANKWISE_TRAINERS_CAPTURE_IF_ASKED_H_
#define RANKWISE_TRAINERS_CAPTURE_IF_ASKED_H_

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "trainers/config.h"
#include "trainers/training_run.h"
#include "trainers/worker.h"

namespace rankwise {

// Of the step that is recorded.
struct RecordableStep {
  StepFunction step;  // see CapturedStep
  int64_t warm_up_steps = 3;
  std::function<absl::Status()> recover = nullptr;  // see CapturedStepHooks
};

// `step.step` itself without --cuda_graph; else one that records it and runs
// the recording where it can (captured_step.h). What it refers to must outlive
// the result.
StepFunction CaptureIfAsked(const TrainConfig& config, const Worker& worker,
                            TrainingRun& run, RecordableStep step);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_CAPTURE_IF_ASKED_H_
