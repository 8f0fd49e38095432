#include "trainers/observe/step_clock.h"

#include <c10/util/Exception.h>

#include <chrono>

namespace rankwise {
namespace {

struct PhaseFacts {
  const char* name;             // null: left out of traces and ranges
  double StepRecord::*seconds;  // null: in no part of the record
};

// By Phase.
constexpr PhaseFacts kPhases[] = {
    {nullptr, nullptr},  // kBetween
    {"data wait", &StepRecord::data_wait_seconds},
    {"forward", &StepRecord::forward_seconds},
    {"backward", &StepRecord::backward_seconds},
    {"schedule", nullptr},
    {"optimizer", &StepRecord::optimizer_seconds},
    {"captured step", &StepRecord::captured_seconds},
    {nullptr, nullptr},  // kEnd
};

const PhaseFacts& FactsOf(Phase phase) {
  return kPhases[static_cast<size_t>(phase)];
}

// Waiting for data is the host's; the rest is what the device does.
double SecondsOf(Phase phase, const DeviceEvent& from, const DeviceEvent& to) {
  if (phase != Phase::kDataWait) return WaitForSecondsBetween(from, to);
  return std::chrono::duration<double>(to.given() - from.given()).count();
}

}  // namespace

const char* PhaseName(Phase phase) { return FactsOf(phase).name; }

StepClock::StepClock(torch::Device device) : inert_(false), device_(device) {
  Begin(Phase::kBetween);
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

int64_t StepClock::start_ns() const {
  return inert_ ? 0 : marks_.front().event.given().time_since_epoch().count();
}

bool StepClock::ended() const {
  return !marks_.empty() && marks_.back().phase == Phase::kEnd;
}

void StepClock::WaitForTheEnd() const {
  TORCH_CHECK(!inert_, "an inert step clock measures nothing");
  TORCH_CHECK(ended(), "a step's clock was read before the step's end");
  marks_.back().event.Wait();
}

void StepClock::AddTo(StepRecord& record) const {
  WaitForTheEnd();
  for (size_t i = 0; i + 1 < marks_.size(); ++i) {
    const Phase phase = marks_[i].phase;
    if (const auto field = FactsOf(phase).seconds; field != nullptr)
      record.*field += SecondsOf(phase, marks_[i].event, marks_[i + 1].event);
  }
  record.step_seconds =
      WaitForSecondsBetween(marks_.front().event, marks_.back().event);
}

std::vector<PhaseSpan> StepClock::Phases() const {
  WaitForTheEnd();
  const double begin = static_cast<double>(start_ns()) * 1e-9;
  std::vector<PhaseSpan> spans;
  for (size_t i = 0; i + 1 < marks_.size(); ++i) {
    const Phase phase = marks_[i].phase;
    const auto seconds = [&](const Mark& mark) {
      return begin + SecondsOf(phase, marks_.front().event, mark.event);
    };
    spans.push_back({phase, seconds(marks_[i]), seconds(marks_[i + 1])});
  }
  return spans;
}

}  // namespace rankwise
