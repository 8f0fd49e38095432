#include "trainers/observe/step_log.h"

#include <ATen/ops/stack.h>
#include <c10/util/Exception.h>

#include <chrono>
#include <cmath>
#include <utility>

#include "third_party/absl/status_macros.h"

namespace rankwise {
namespace {

struct PhaseFacts {
  const char* name;             // nullptr if left out of traces and ranges
  double StepRecord::*seconds;  // nullptr if no part of the record
  // Work of the first device while the other replicas wait.
  bool of_first_device = false;
  // Copies between devices.
  bool copies = false;
};

// Indexed by Phase.
constexpr PhaseFacts kPhases[] = {
    {nullptr, nullptr},  // kBetween
    {"data wait", &StepRecord::data_wait_seconds},
    {"forward", &StepRecord::forward_seconds},
    {"backward", &StepRecord::backward_seconds},
    {"schedule", nullptr},
    {"optimizer", &StepRecord::optimizer_seconds},
    {"captured step", &StepRecord::captured_seconds},
    {"scatter", &StepRecord::forward_seconds, true, true},
    {"replicate", &StepRecord::forward_seconds, true, true},
    {"gather", &StepRecord::forward_seconds, true, true},
    {"loss", &StepRecord::forward_seconds, true},
    {"scatter gradient", &StepRecord::backward_seconds, true, true},
    {"reduce", &StepRecord::backward_seconds, true, true},
    {nullptr, nullptr},  // kEnd
};

const PhaseFacts& FactsOf(Phase phase) {
  return kPhases[static_cast<size_t>(phase)];
}

// Waiting for data is measured on the host, other phases on the device.
double SecondsOf(Phase phase, const DeviceEvent& from, const DeviceEvent& to) {
  if (phase != Phase::kDataWait) return WaitForSecondsBetween(from, to);
  return std::chrono::duration<double>(to.given() - from.given()).count();
}

void AddPhase(Phase phase, double seconds, StepRecord& record) {
  const PhaseFacts& facts = FactsOf(phase);
  if (facts.seconds != nullptr) record.*facts.seconds += seconds;
  if (facts.of_first_device) record.first_device_seconds[facts.name] += seconds;
  if (!facts.copies) return;
  record.exposed_by_axis_seconds["dp"] += seconds;
  record.exposed_comm_seconds += seconds;
}

// Adds exposed communication to the total and by axis.
void AddExposed(const StepOutcome& outcome, StepRecord& record) {
  const auto add = [&record](const std::string& axis,
                             const PendingDuration& exposed) {
    const double seconds = exposed.Wait();
    if (seconds > 0) record.exposed_by_axis_seconds[axis] += seconds;
    record.exposed_comm_seconds += seconds;
  };
  add("dp", outcome.exposed_comm_seconds);
  for (const auto& [axis, exposed] : outcome.exposed_by_axis)
    add(axis, exposed);
}

// Returns each step's loss and, if defined, gradient norm, to be read at once.
std::vector<torch::Tensor> NumbersOf(const std::vector<PendingStep>& steps) {
  std::vector<torch::Tensor> numbers;
  for (const PendingStep& step : steps) {
    const StepOutcome& outcome = step.outcome;
    numbers.push_back(outcome.loss.to(at::kFloat));
    if (outcome.gradient_norm.defined())
      numbers.push_back(outcome.gradient_norm.to(numbers.back().options()));
  }
  return numbers;
}

}  // namespace

const char* PhaseName(Phase phase) { return FactsOf(phase).name; }

StepClock::StepClock(torch::Device device) : inert_(false), device_(device) {
  Begin(Phase::kBetween);
}

StepClock StepClock::Inert() { return StepClock(); }

void StepClock::Begin(Phase phase) {
  if (inert_) return;
  TORCH_CHECK(!ended(), "Begin() was called on the clock of a finished step");
  if (observer_ != nullptr) observer_(phase);
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
    if (FactsOf(phase).seconds == nullptr) continue;
    AddPhase(phase, SecondsOf(phase, marks_[i].event, marks_[i + 1].event),
             record);
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

absl::Status StepLog::Add(PendingStep step) {
  pending_.push_back(std::move(step));
  return device_.is_cpu() ? Flush() : absl::OkStatus();
}

void StepLog::CheckFinite(const PendingStep& step, double loss,
                          double gradient_norm) {
  const int loss_rank = step.outcome.loss_rank;
  const bool finite = std::isfinite(loss) || loss_rank == StepOutcome::kNoRank;
  non_finite_in_a_row_ = finite ? 0 : non_finite_in_a_row_ + 1;
  if (first_non_finite_.step > 0) return;
  const StepRecord& record = step.record;
  const auto rank = static_cast<int>(record.rank);
  if (non_finite_in_a_row_ >= non_finite_steps_) {
    first_non_finite_ = {record.step, loss_rank < 0 ? rank : loss_rank,
                         /*is_gradient_norm=*/false, loss};
  } else if (!std::isfinite(gradient_norm)) {
    first_non_finite_ = {record.step, rank, /*is_gradient_norm=*/true,
                         gradient_norm};
  }
}

absl::Status StepLog::Flush() {
  if (pending_.empty()) return absl::OkStatus();
  const torch::Tensor on_host = at::stack(NumbersOf(pending_)).cpu();
  const float* number = on_host.data_ptr<float>();
  std::vector<StepRecord> records;
  std::vector<TrafficRecord> traffic;
  for (PendingStep& step : pending_) {
    StepRecord& record = step.record;
    record.loss = *number++;
    CheckFinite(step, record.loss,
                step.outcome.gradient_norm.defined() ? *number++ : 0);
    step.clock.AddTo(record);
    AddExposed(step.outcome, record);
    if (step.outcome.complete != nullptr) step.outcome.complete(record);
    epoch_sums_.loss += record.loss * static_cast<double>(record.examples);
    epoch_sums_.examples += record.examples;
    records.push_back(record);
    if (!step.traffic.has_value()) continue;
    traffic.push_back(*std::move(step.traffic));
    traffic.back().step_seconds = record.step_seconds;
    traffic.back().exposed_comm_seconds =
        step.outcome.wait_seconds + record.exposed_comm_seconds;
  }
  last_loss_ = records.back().loss;
  pending_.clear();
  if (writer_ == nullptr) return absl::OkStatus();
  RETURN_IF_ERROR(writer_->Write(records));
  for (TrafficRecord& record : traffic) {
    RETURN_IF_ERROR(writer_->Write(Record(std::move(record))));
  }
  return absl::OkStatus();
}

}  // namespace rankwise
