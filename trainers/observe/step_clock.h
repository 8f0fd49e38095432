// Where a training step's time goes, measured without making the host wait for
// the device.
#ifndef RANKWISE_TRAINERS_OBSERVE_STEP_CLOCK_H_
#define RANKWISE_TRAINERS_OBSERVE_STEP_CLOCK_H_

#include <torch/types.h>

#include <cstdint>
#include <vector>

#include "parallel/device/device_event.h"
#include "parallel/trace/operators.h"
#include "records/record.h"

namespace rankwise {

// kSchedule: a pipeline's forward and backward passes, which the executor times
// one by one. kCaptured: forward, backward and update in one launch of a graph.
enum class Phase {
  kBetween,
  kDataWait,
  kForward,
  kBackward,
  kSchedule,
  kOptimizer,
  kCaptured,
  kEnd
};

// What traces and ranges call it; null for what they leave out.
const char* PhaseName(Phase phase);

// A stretch of one phase, in seconds of the steady clock.
struct PhaseSpan {
  Phase phase = Phase::kBetween;
  double start_seconds = 0, end_seconds = 0;
};

// One step's phases. On a CPU the marks are the host's clock; on CUDA they are
// events on the current stream, so that a phase is what the device spent in it,
// except kDataWait, which is always the host's. Phases are NVTX ranges, too.
class StepClock {
 public:
  // The step starts now, in kBetween: records, console and checkpoints after
  // the step before.
  explicit StepClock(torch::Device device);
  // Marks nothing, for a step that is being captured in a graph: no events
  // may come between. Has nothing to read.
  static StepClock Inert();

  // The phase before ends here and `phase` begins. A phase may come several
  // times; its times add up. Throws c10::Error after kEnd.
  void Begin(Phase phase);

  // Adds the phases' times to those of `record`, and sets the step's. Blocks
  // until the device has reached the end of the step. Throws c10::Error before
  // Begin(kEnd), and of an inert clock.
  void AddTo(StepRecord& record) const;

  // The phases one by one, the first from the step's begin; blocks and throws
  // as AddTo. On CUDA the device's times count from the host's begin of the
  // step, which is right where the device had nothing left to do then.
  std::vector<PhaseSpan> Phases() const;

  // When the step began, by the host's steady clock.
  int64_t start_ns() const;

 private:
  struct Mark {
    Phase phase;
    DeviceEvent event;
  };
  StepClock() = default;  // inert
  bool ended() const;
  void WaitForTheEnd() const;

  bool inert_ = true;
  torch::Device device_ = torch::kCPU;
  std::vector<Mark> marks_;  // empty where inert
  ScopedRange range_;
};

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_OBSERVE_STEP_CLOCK_H_
