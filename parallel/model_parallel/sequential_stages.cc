#include "parallel/model_parallel/sequential_stages.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <utility>

#include "torch/csrc/autograd/autograd.h"

namespace rankwise {
namespace {

TimedAction Started(size_t stage, int micro_batch, ActionKind kind,
                    c10::Device device) {
  TimedAction timed;
  timed.action = {static_cast<int32_t>(stage), micro_batch, kind};
  timed.start.emplace(device);
  return timed;
}

}  // namespace

bool SequentialStepInFlight::reached() const {
  return std::all_of(ends_.begin(), ends_.end(),
                     [](const Moment& end) { return end.reached(); });
}

SequentialStep SequentialStepInFlight::Read(
    const std::vector<HostAnchor>& anchors) const {
  for (const Moment& end : ends_) end.Wait();
  std::vector<NearMoments> times;  // by stage
  for (size_t i = 0; i < starts_.size(); ++i)
    times.emplace_back(starts_[i], anchors[i]);
  SequentialStep step;
  step.loss = loss_;
  step.timeline.ranks.resize(actions_.size());
  step.boundaries.resize(actions_.size() - 1);
  step.start_seconds = times[0].HostSeconds(starts_[0]);
  for (size_t i = 0; i < actions_.size(); ++i) {
    for (const TimedAction& timed : actions_[i]) {
      step.timeline.ranks[i].push_back({timed.action,
                                        times[i].HostSeconds(*timed.start),
                                        times[i].HostSeconds(*timed.end)});
    }
    step.end_seconds =
        std::max(step.end_seconds, times[i].HostSeconds(ends_[i]));
  }
  for (const TimedCopy& timed : copies_) {
    const StageCopy copy{timed.from, timed.to, timed.bytes,
                         times[timed.from].HostSeconds(timed.start),
                         times[timed.from].HostSeconds(timed.end)};
    BoundaryTraffic& traffic = step.boundaries[std::min(timed.from, timed.to)];
    traffic.seconds += copy.end_seconds - copy.start_seconds;
    traffic.bytes += copy.bytes;
    step.copies.push_back(copy);
  }
  return step;
}

SequentialStages::SequentialStages(std::vector<Stage*> stages,
                                   std::vector<c10::Device> devices,
                                   bool skip_communication)
    : stages_(std::move(stages)),
      devices_(std::move(devices)),
      skip_communication_(skip_communication),
      inputs_(stages_.size()),
      outputs_(stages_.size()) {
  for (const c10::Device& device : devices_)
    replacements_.emplace_back(device, /*filled=*/true);
}

std::vector<HostAnchor> SequentialStages::AnchorClocks() const {
  std::vector<HostAnchor> anchors;
  for (const c10::Device& device : devices_) anchors.emplace_back(device);
  return anchors;
}

at::Tensor SequentialStages::Transfer(const at::Tensor& tensor, size_t from,
                                      size_t to, SequentialStepInFlight& step) {
  if (skip_communication_) {
    const at::Tensor wire = replacements_[to].Take(
        WireShape(tensor.sizes().vec()), tensor.scalar_type());
    return FromWire(wire).detach();
  }
  // Between accelerators ATen copies on the source's current stream, after what
  // both devices' current streams have been given, and the target's waits for
  // it. Where one side is the host's memory, the host waits: it may read on.
  const bool asynchronous = !devices_[from].is_cpu() && !devices_[to].is_cpu();
  Moment start(devices_[from]);
  at::Tensor moved = tensor.to(devices_[to], tensor.scalar_type(), asynchronous,
                               /*copy=*/true);
  step.copies_.push_back({from, to, static_cast<int64_t>(tensor.nbytes()),
                          std::move(start), Moment(devices_[from])});
  return moved;
}

at::Tensor SequentialStages::RunForwardOf(int micro_batch,
                                          SequentialStepInFlight& step) {
  for (size_t i = 0; i < stages_.size(); ++i) {
    if (i > 0) {
      // A leaf of this stage's own graph: its gradient is what goes back.
      inputs_[i] = Transfer(outputs_[i - 1].detach(), i - 1, i, step)
                       .requires_grad_(at::GradMode::is_enabled());
    }
    TimedAction timed =
        Started(i, micro_batch, ActionKind::kForward, devices_[i]);
    outputs_[i] = stages_[i]->Forward(micro_batch, inputs_[i]);
    timed.end.emplace(devices_[i]);
    step.actions_[i].push_back(std::move(timed));
  }
  return outputs_.back().detach();
}

void SequentialStages::RunBackwardOf(int micro_batch,
                                     SequentialStepInFlight& step) {
  at::Tensor gradient;  // of the loss: 1
  for (size_t i = stages_.size(); i-- > 0;) {
    TimedAction timed =
        Started(i, micro_batch, ActionKind::kBackward, devices_[i]);
    if (outputs_[i].requires_grad())
      torch::autograd::backward({outputs_[i]}, {gradient});
    timed.end.emplace(devices_[i]);
    step.actions_[i].push_back(std::move(timed));
    if (i > 0) gradient = Transfer(inputs_[i].grad(), i, i - 1, step);
    outputs_[i].reset();
    inputs_[i].reset();
  }
}

SequentialStepInFlight SequentialStages::Run(int micro_batches) {
  SequentialStepInFlight step;
  step.actions_.resize(stages_.size());
  for (const c10::Device& device : devices_) step.starts_.emplace_back(device);
  for (int i = 0; i < micro_batches; ++i) {
    const at::Tensor share = RunForwardOf(i, step);
    step.loss_ = step.loss_.defined() ? step.loss_ + share : share;
    RunBackwardOf(i, step);
  }
  for (const c10::Device& device : devices_) step.ends_.emplace_back(device);
  return step;
}

void SequentialStages::RunForward(int micro_batches) {
  at::NoGradGuard no_grad;
  SequentialStepInFlight unused;
  unused.actions_.resize(stages_.size());
  for (int i = 0; i < micro_batches; ++i) RunForwardOf(i, unused);
}

}  // namespace rankwise
