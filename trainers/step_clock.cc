#include "trainers/step_clock.h"

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace rankwise {

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
    case Phase::kBetween:
    case Phase::kEnd:
      break;
  }
  return nullptr;
}

StepClock::StepClock(torch::Device device) : device_(device) {
  Begin(Phase::kBetween);
}
StepClock::~StepClock() = default;
StepClock::StepClock(StepClock&&) noexcept = default;
StepClock& StepClock::operator=(StepClock&&) noexcept = default;

void StepClock::Begin(Phase phase) {
  range_.Close();
  if (PhaseName(phase) != nullptr && RangesOn())
    range_ = ScopedRange(PhaseName(phase));
  std::unique_ptr<c10::Event> event;
  if (!device_.is_cpu()) {
    const c10::impl::VirtualGuardImpl guard(device_.type());
    event = std::make_unique<c10::Event>(device_.type(),
                                         c10::EventFlag::BACKEND_DEFAULT);
    event->record(guard.getStream(device_));
  }
  marks_.push_back({phase, std::chrono::steady_clock::now(), std::move(event)});
}

StepTimes StepClock::Read() const {
  StepTimes times;
  for (size_t i = 0; i + 1 < marks_.size(); ++i) {
    const Mark& from = marks_[i];
    const Mark& to = marks_[i + 1];
    const double seconds = from.phase == Phase::kDataWait
                               ? HostSeconds(from, to)
                               : Elapsed(from, to);
    switch (marks_[i].phase) {
      case Phase::kDataWait:
        times.data_wait_seconds += seconds;
        break;
      case Phase::kForward:
        times.forward_seconds += seconds;
        break;
      case Phase::kBackward:
        times.backward_seconds += seconds;
        break;
      case Phase::kOptimizer:
        times.optimizer_seconds += seconds;
        break;
      case Phase::kBetween:
      case Phase::kSchedule:
      case Phase::kEnd:
        break;
    }
  }
  times.step_seconds = Elapsed(marks_.front(), marks_.back());
  return times;
}

std::vector<PhaseSpan> StepClock::Phases() const {
  const double begin =
      std::chrono::duration<double>(start().time_since_epoch()).count();
  std::vector<PhaseSpan> spans;
  for (size_t i = 0; i + 1 < marks_.size(); ++i) {
    const auto seconds_since_begin =
        marks_[i].phase == Phase::kDataWait ? HostSeconds : Elapsed;
    spans.push_back(
        {marks_[i].phase,
         begin + seconds_since_begin(marks_.front(), marks_[i]),
         begin + seconds_since_begin(marks_.front(), marks_[i + 1])});
  }
  return spans;
}

double StepClock::HostSeconds(const Mark& from, const Mark& to) {
  return std::chrono::duration<double>(to.host - from.host).count();
}

double StepClock::Elapsed(const Mark& from, const Mark& to) {
  if (from.device == nullptr) return HostSeconds(from, to);
  return from.device->elapsedTime(*to.device) * 1e-3;
}

}  // namespace rankwise
