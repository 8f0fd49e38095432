#include "trainers/observe/step_clock.h"

#include <c10/util/Exception.h>

namespace rankwise {
namespace {

double HostSeconds(const DeviceEvent& from, const DeviceEvent& to) {
  return std::chrono::duration<double>(to.given() - from.given()).count();
}

// Waiting for data is the host's; the rest is what the device does.
auto ClockOf(Phase phase) {
  return phase == Phase::kDataWait ? HostSeconds : WaitForSecondsBetween;
}

double* FieldOf(Phase phase, StepTimes& times) {
  switch (phase) {
    case Phase::kDataWait:
      return &times.data_wait_seconds;
    case Phase::kForward:
      return &times.forward_seconds;
    case Phase::kBackward:
      return &times.backward_seconds;
    case Phase::kOptimizer:
      return &times.optimizer_seconds;
    case Phase::kCaptured:
      return &times.captured_seconds;
    case Phase::kBetween:
    case Phase::kSchedule:
    case Phase::kEnd:
      break;
  }
  return nullptr;
}

}  // namespace

const char* PhaseName(Phase phase) {
  switch (phase) {
    case Phase::kDataWait:
      return "data wait";
    case Phase::kForward:
      return "forward";
    case Phase::kBackward:
      return "backward";
    case Phase::kSchedule:
      return "schedule";
    case Phase::kOptimizer:
      return "optimizer";
    case Phase::kCaptured:
      return "captured step";
    case Phase::kBetween:
    case Phase::kEnd:
      break;
  }
  return nullptr;
}

StepClock::StepClock(torch::Device device) : inert_(false), device_(device) {
  Begin(Phase::kBetween);
  start_ = marks_.front().moment.given();
}

StepClock StepClock::Inert() { return StepClock(); }

void StepClock::Begin(Phase phase) {
  if (inert_) return;
  TORCH_CHECK(!ended(), "the clock of a step that is over was told of a phase");
  range_.Close();
  if (PhaseName(phase) != nullptr && RangesOn())
    range_ = ScopedRange(PhaseName(phase));
  marks_.push_back({phase, DeviceEvent(device_)});
}

bool StepClock::ended() const {
  return !marks_.empty() && marks_.back().phase == Phase::kEnd;
}

void StepClock::WaitForTheEnd() const {
  TORCH_CHECK(!inert_, "an inert step clock measures nothing");
  TORCH_CHECK(ended(), "a step's clock was read before the step's end");
  marks_.back().moment.Wait();
}

StepTimes StepClock::Read() const {
  WaitForTheEnd();
  StepTimes times;
  for (size_t i = 0; i + 1 < marks_.size(); ++i) {
    double* const field = FieldOf(marks_[i].phase, times);
    if (field == nullptr) continue;
    *field += ClockOf(marks_[i].phase)(marks_[i].moment, marks_[i + 1].moment);
  }
  times.step_seconds =
      WaitForSecondsBetween(marks_.front().moment, marks_.back().moment);
  return times;
}

std::vector<PhaseSpan> StepClock::Phases() const {
  WaitForTheEnd();
  const double begin =
      std::chrono::duration<double>(start_.time_since_epoch()).count();
  std::vector<PhaseSpan> spans;
  for (size_t i = 0; i + 1 < marks_.size(); ++i) {
    const auto seconds_since_begin = ClockOf(marks_[i].phase);
    spans.push_back(
        {marks_[i].phase,
         begin + seconds_since_begin(marks_.front().moment, marks_[i].moment),
         begin +
             seconds_since_begin(marks_.front().moment, marks_[i + 1].moment)});
  }
  return spans;
}

}  // namespace rankwise
