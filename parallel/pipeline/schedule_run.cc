#include "parallel/pipeline/schedule_run.h"

#include <algorithm>
#include <utility>

#include "ATen/ops/zeros.h"
#include "c10/util/Exception.h"
#include "parallel/pipeline/timeline.h"
#include "parallel/pipeline/trace.h"
#include "parallel/trace/ranges.h"

namespace rankwise {
namespace {

bool CompletesGradients(ActionKind kind) {
  return kind == ActionKind::kBackward || kind == ActionKind::kWeightGrad;
}

}  // namespace

ScheduleRun::ScheduleRun(const Schedule& schedule, Channel& channel,
                         WireBuffers& buffers, StageRunners& runners,
                         Options options)
    : schedule_(schedule),
      actions_(schedule.actions[channel.rank()]),
      values_(schedule),
      releases_(FindSendReleases(schedule, channel.rank())),
      channel_(channel),
      buffers_(buffers),
      runners_(runners),
      options_(std::move(options)),
      missing_gradients_(schedule.num_stages()) {
  for (const Action& action : actions_) {
    if (CompletesGradients(action.kind)) ++missing_gradients_[action.stage];
  }
  if (!options_.evaluate && runners_.back() != nullptr) {
    shares_.resize(schedule.num_micro_batches);
  }
  step_.spans.resize(actions_.size());
  for (size_t i = 0; i < actions_.size(); ++i) {
    step_.spans[i].action = actions_[i];
  }
}

ExecutorStep ScheduleRun::Run() {
  step_.start_seconds = Now();
  for (size_t i = 0; i < actions_.size();) {
    if (IsCompute(actions_[i].kind)) {
      Compute(i++);
      continue;
    }
    const size_t begin = i++;
    while (i < actions_.size() && actions_[i].batched) ++i;
    Communicate(begin, i);
  }
  while (!sends_.empty()) FinishSend(sends_.begin()->first);
  return std::move(step_);
}

void ScheduleRun::Communicate(size_t begin, size_t end) {
  const double start = Now();
  std::vector<Transfer*> batch;
  for (size_t i = begin; i < end; ++i) {
    const bool is_send = IsSend(actions_[i].kind);
    const size_t value = values_.CarriedBy(actions_[i]);
    auto& table = is_send ? sends_ : receives_;
    InFlight& in_flight = table.emplace(value, MakeTransfer(i)).first->second;
    batch.push_back(&in_flight.transfer);
    (is_send ? step_.sent_bytes : step_.received_bytes) +=
        static_cast<int64_t>(in_flight.transfer.tensor.nbytes());
    step_.spans[i].start_seconds = start;
    if (is_send && options_.max_sends > 0) send_order_.push_back(value);
  }
  channel_.Start(std::move(batch));
  while (send_order_.size() > options_.max_sends) {
    FinishSend(send_order_.front());
    send_order_.pop_front();
  }
}

ScheduleRun::InFlight ScheduleRun::MakeTransfer(size_t position) {
  const Action& action = actions_[position];
  const size_t value = values_.CarriedBy(action);
  InFlight in_flight;
  in_flight.action = position;
  Transfer& transfer = in_flight.transfer;
  transfer.is_send = IsSend(action.kind);
  transfer.tag = static_cast<int>(value);
  const int other =
      transfer.is_send ? values_.UserOf(value) : values_.MakerOf(value);
  transfer.peer = schedule_.rank_of_stage[other];
  if (transfer.is_send) {
    transfer.tensor = ToWire(Take(value));
  } else {
    const Stage& stage = runners_[action.stage]->stage();
    in_flight.value =
        buffers_.Take(WireShape(action.kind == ActionKind::kRecvForward
                                    ? stage.InputShape(action.micro_batch)
                                    : stage.OutputShape(action.micro_batch)));
    transfer.tensor = in_flight.value;
  }
  if (options_.skip_communication) {
    transfer.tensor = at::zeros({1}, transfer.tensor.options());
  }
  return in_flight;
}

void ScheduleRun::Compute(size_t position) {
  const Action& action = actions_[position];
  const size_t needed = values_.NeededBy(action);
  at::Tensor input;
  if (needed != Values::kNone) input = Take(needed);
  step_.spans[position].start_seconds = Now();
  ScopedRange range;
  if (RangesOn()) range = ScopedRange(TraceName(action));
  const at::Tensor result = Perform(action, input);
  range.Close();
  const size_t made = values_.MadeBy(action);
  if (made != Values::kNone) made_[made] = result;
  step_.spans[position].end_seconds = Now();
  Count(action);
}

at::Tensor ScheduleRun::Perform(const Action& action,
                                const at::Tensor& needed) {
  StageRunner& runner = *runners_[action.stage];
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

// What was made here, or what arrives, for its only user.
at::Tensor ScheduleRun::Take(size_t value) {
  const auto made = made_.find(value);
  if (made != made_.end()) {
    const at::Tensor tensor = FromWire(ToWire(made->second));
    made_.erase(made);
    return tensor;
  }
  auto received = receives_.extract(value);
  TORCH_CHECK(!received.empty(), "schedule ", schedule_.name, ": ",
              ToString(values_.ReceiveOf(value)),
              " is needed before it is posted; schedules must come from "
              "AddCommunication");
  const at::Tensor tensor = FromWire(received.mapped().value);
  Finish(std::move(received.mapped()));
  const auto arrived = releases_.find(value);
  if (arrived != releases_.end()) {
    for (size_t sent : arrived->second) FinishSend(sent);
  }
  return tensor;
}

void ScheduleRun::Finish(InFlight in_flight) {
  channel_.Wait(in_flight.transfer);
  step_.spans[in_flight.action].end_seconds = Now();
}

void ScheduleRun::FinishSend(size_t value) {
  auto sent = sends_.extract(value);
  if (!sent.empty()) Finish(std::move(sent.mapped()));
}

}  // namespace rankwise
