// Where a training step's time goes, measured without making the host wait for
// the device.
#ifndef RANKWISE_TRAINERS_STEP_CLOCK_H_
#define RANKWISE_TRAINERS_STEP_CLOCK_H_

#include <torch/types.h>

#include <chrono>
#include <memory>
#include <vector>

#include "parallel/trace/ranges.h"

namespace c10 {
struct Event;
}

namespace rankwise {

// kSchedule: a pipeline's forward and backward passes, which the executor times
// one by one.
enum class Phase {
  kBetween,
  kDataWait,
  kForward,
  kBackward,
  kSchedule,
  kOptimizer,
  kEnd
};

// What traces and ranges call it; null for what they leave out.
const char* PhaseName(Phase phase);

// A stretch of one phase, in seconds of the steady clock.
struct PhaseSpan {
  Phase phase = Phase::kBetween;
  double start_seconds = 0, end_seconds = 0;
};

struct StepTimes {
  double step_seconds = 0;
  double data_wait_seconds = 0;
  double forward_seconds = 0;
  double backward_seconds = 0;
  double optimizer_seconds = 0;
};

// One step's phases. On a CPU the marks are the host's clock; on CUDA they are
// events on the current stream, so that a phase is what the device spent in it,
// except kDataWait, which is always the host's. Phases are NVTX ranges, too.
class StepClock {
 public:
  // The step starts now, in kBetween: records, console and checkpoints after
  // the step before.
  explicit StepClock(torch::Device device);
  ~StepClock();
  StepClock(StepClock&&) noexcept;
  StepClock& operator=(StepClock&&) noexcept;

  // The phase before ends here and `phase` begins. A phase may come several
  // times; its times add up.
  void Begin(Phase phase);

  // After Begin(kEnd). On CUDA the device must have reached the end of the step
  // (reading its loss sees to that).
  StepTimes Read() const;

  // The phases one by one, the first from the step's begin; as Read, after the
  // device. On CUDA the device's times count from the host's begin of the step,
  // which is right where the device had nothing left to do then.
  std::vector<PhaseSpan> Phases() const;

  // When the step began, by the host's clock.
  std::chrono::steady_clock::time_point start() const {
    return marks_.front().host;
  }

 private:
  struct Mark {
    Phase phase;
    std::chrono::steady_clock::time_point host;
    std::unique_ptr<c10::Event> device;  // null on a CPU
  };
  static double HostSeconds(const Mark& from, const Mark& to);
  static double Elapsed(const Mark& from,
                        const Mark& to);  // the device's, on CUDA

  torch::Device device_;
  std::vector<Mark> marks_;
  ScopedRange range_;
};

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_STEP_CLOCK_H_
