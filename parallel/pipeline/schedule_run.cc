#include "parallel/pipeline/schedule_run.h"

#include <algorithm>
#include <utility>

#include "ATen/ops/zeros.h"
#include "c10/core/StreamGuard.h"
#include "c10/util/Exception.h"
#include "parallel/pipeline/trace.h"
#include "parallel/trace/ranges.h"

namespace rankwise {
namespace {

bool CompletesGradients(ActionKind kind) {
  return kind == ActionKind::kBackward || kind == ActionKind::kWeightGrad;
}

}  // namespace

ScheduleRun::ScheduleRun(const Schedule& schedule, const RunParts& parts,
                         Options options)
    : schedule_(schedule),
      actions_(schedule.actions[parts.mail.rank()]),
      values_(schedule),
      releases_(FindSendReleases(schedule, parts.mail.rank())),
      parts_(parts),
      device_(parts.mail.device()),
      options_(std::move(options)),
      missing_gradients_(schedule.num_stages()) {
  for (const Action& action : actions_) {
    if (CompletesGradients(action.kind)) ++missing_gradients_[action.stage];
  }
  if (!options_.evaluate &&
      schedule.rank_of_stage.back() == parts_.mail.rank()) {
    shares_.resize(schedule.num_micro_batches);
  }
  step_.actions.resize(actions_.size());
  for (size_t i = 0; i < actions_.size(); ++i) {
    step_.actions[i].action = actions_[i];
  }
  step_.start.emplace(device_);
}

void ScheduleRun::Run() {
  while (!done()) Next();
  Finish();
}

void ScheduleRun::Next() {
  if (IsCompute(actions_[next_].kind)) {
    Compute(next_++);
    return;
  }
  Communicate(next_++);
  while (send_order_.size() > options_.max_sends) {
    FinishSend(send_order_.front());
    send_order_.pop_front();
  }
}

void ScheduleRun::Finish() {
  while (!sends_.empty()) FinishSend(sends_.begin()->first);
}

void ScheduleRun::Communicate(size_t position) {
  const Action& action = actions_[position];
  const bool is_send = IsSend(action.kind);
  const size_t value = values_.CarriedBy(action);
  // A send follows what made the value; a receive follows nothing.
  const c10::MultiStreamGuard stream(is_send
                                         ? parts_.streams.Of(action.stage)
                                         : parts_.streams.Arrivals(device_));
  step_.actions[position].start.emplace(device_);
  auto& table = is_send ? sends_ : receives_;
  InFlight& in_flight =
      table.emplace(value, MakeTransfer(position)).first->second;
  (is_send ? step_.sent_bytes : step_.received_bytes) +=
      static_cast<int64_t>(in_flight.transfer.tensor.nbytes());
  if (is_send && options_.max_sends > 0) send_order_.push_back(value);
  parts_.mail.Start(in_flight.transfer);
}

ScheduleRun::InFlight ScheduleRun::MakeTransfer(size_t position) {
  const Action& action = actions_[position];
  const size_t value = values_.CarriedBy(action);
  InFlight in_flight;
  in_flight.action = position;
  P2POp& transfer = in_flight.transfer;
  transfer.is_send = IsSend(action.kind);
  transfer.tag = static_cast<int>(value);
  const int other =
      transfer.is_send ? values_.UserOf(value) : values_.MakerOf(value);
  transfer.peer = schedule_.rank_of_stage[other];
  if (transfer.is_send) {
    transfer.tensor = ToWire(Take(value, action.stage));
  } else {
    const Stage& stage = parts_.runners[action.stage]->stage();
    const bool forward = action.kind == ActionKind::kRecvForward;
    in_flight.value = parts_.buffers.Take(
        WireShape(forward ? stage.InputShape(action.micro_batch)
                          : stage.OutputShape(action.micro_batch)),
        forward ? stage.InputType() : stage.OutputType());
    transfer.tensor = in_flight.value;
  }
  if (options_.skip_communication) {
    transfer.tensor = at::zeros({1}, transfer.tensor.options());
  }
  return in_flight;
}

void ScheduleRun::Compute(size_t position) {
  const Action& action = actions_[position];
  const c10::MultiStreamGuard stream(parts_.streams.Of(action.stage));
  const size_t needed = values_.NeededBy(action);
  at::Tensor input;
  if (needed != Values::kNone) input = Take(needed, action.stage);
  step_.actions[position].start.emplace(device_);
  ScopedRange range;
  if (RangesOn()) range = ScopedRange(TraceName(action));
  const at::Tensor result = Perform(action, input);
  range.Close();
  const size_t made = values_.MadeBy(action);
  if (made != Values::kNone) made_[made].tensor = result;
  step_.actions[position].end.emplace(device_);
  if (made != Values::kNone && !device_.is_cpu())
    made_[made].ready.emplace(device_);
  Count(action);
}

at::Tensor ScheduleRun::Perform(const Action& action,
                                const at::Tensor& needed) {
  StageRunner& runner = *parts_.runners[action.stage];
  switch (action.kind) {
    case ActionKind::kForward: {
      if (options_.evaluate) return runner.Evaluate(action.micro_batch, needed);
      const at::Tensor output = runner.Forward(action.micro_batch, needed);
      if (action.stage + 1 == schedule_.num_stages()) {
        shares_[action.micro_batch] = output;
      }
      return output;
    }
    case ActionKind::kBackward:
      return runner.Backward(action.micro_batch, needed);
    case ActionKind::kInputGrad:
      return runner.InputGrad(action.micro_batch, needed);
    default:
      runner.WeightGrad(action.micro_batch);
      return at::Tensor();
  }
}

void ScheduleRun::Count(const Action& action) {
  if (action.kind == ActionKind::kForward) ++activations_;
  step_.peak_activations = std::max(step_.peak_activations, activations_);
  if (!CompletesGradients(action.kind)) return;
  --activations_;
  if (--missing_gradients_[action.stage] == 0 && options_.on_gradients_ready) {
    options_.on_gradients_ready(action.stage);
  }
}

// What was made here, or what arrives, for its only user: `stage`, whose stream
// is current.
at::Tensor ScheduleRun::Take(size_t value, int stage) {
  auto made = made_.extract(value);
  if (!made.empty()) {
    const at::Tensor& tensor = made.mapped().tensor;
    if (made.mapped().ready.has_value()) {
      made.mapped().ready->Block(parts_.streams.HomeOf(stage));
      RecordUse(tensor, parts_.streams.HomeOf(stage));
    }
    return FromWire(ToWire(tensor));
  }
  auto received = receives_.extract(value);
  TORCH_CHECK(!received.empty(), "schedule ", schedule_.name, ": ",
              ToString(values_.ReceiveOf(value)),
              " is needed before it is posted; schedules must come from "
              "AddCommunication");
  const at::Tensor tensor = FromWire(received.mapped().value);
  Wait(std::move(received.mapped()));
  RecordUse(tensor, parts_.streams.HomeOf(stage));
  const auto arrived = releases_.find(value);
  if (arrived != releases_.end()) {
    for (size_t sent : arrived->second) FinishSend(sent);
  }
  return tensor;
}

void ScheduleRun::Wait(InFlight in_flight) {
  parts_.mail.Wait(in_flight.transfer);
  step_.actions[in_flight.action].end.emplace(device_);
}

void ScheduleRun::FinishSend(size_t value) {
  auto sent = sends_.extract(value);
  if (sent.empty()) return;
  // The stage that made it may write to its memory again after this.
  const c10::MultiStreamGuard stream(parts_.streams.Of(values_.MakerOf(value)));
  Wait(std::move(sent.mapped()));
}

}  // namespace rankwise
