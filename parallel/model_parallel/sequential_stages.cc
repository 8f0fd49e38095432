#include "parallel/model_parallel/sequential_stages.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <utility>

#include "c10/core/impl/VirtualGuardImpl.h"
#include "torch/csrc/autograd/autograd.h"

namespace rankwise {
namespace {

// The host's clock says nothing of a device that still works.
void WaitFor(c10::Device device) {
  if (!device.is_cpu())
    c10::impl::VirtualGuardImpl(device.type())
        .synchronizeDevice(device.index());
}

}  // namespace

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

at::Tensor SequentialStages::Transfer(const at::Tensor& tensor, size_t from,
                                      size_t to, SequentialStep& step) {
  if (skip_communication_) {
    const at::Tensor wire =
        replacements_[to].Take(WireShape(tensor.sizes().vec()));
    return FromWire(wire).detach().to(tensor.scalar_type());
  }
  const double start = Now();
  at::Tensor moved = tensor.to(devices_[to], tensor.scalar_type(),
                               /*non_blocking=*/false, /*copy=*/true);
  WaitFor(devices_[to]);
  BoundaryTraffic& traffic = step.boundaries[std::min(from, to)];
  const StageCopy copy{from, to, static_cast<int64_t>(tensor.nbytes()), start,
                       Now()};
  traffic.seconds += copy.end_seconds - copy.start_seconds;
  traffic.bytes += copy.bytes;
  step.copies.push_back(copy);
  return moved;
}

at::Tensor SequentialStages::RunForwardOf(int micro_batch,
                                          SequentialStep& step) {
  for (size_t i = 0; i < stages_.size(); ++i) {
    if (i > 0) {
      // A leaf of this stage's own graph: its gradient is what goes back.
      inputs_[i] = Transfer(outputs_[i - 1].detach(), i - 1, i, step)
                       .requires_grad_(at::GradMode::is_enabled());
    }
    const double start = Now();
    outputs_[i] = stages_[i]->Forward(micro_batch, inputs_[i]);
    WaitFor(devices_[i]);
    step.timeline.ranks[i].push_back(
        {{static_cast<int32_t>(i), micro_batch, ActionKind::kForward, false},
         start,
         Now()});
  }
  return outputs_.back().detach();
}

void SequentialStages::RunBackwardOf(int micro_batch, SequentialStep& step) {
  at::Tensor gradient;  // of the loss: 1
  for (size_t i = stages_.size(); i-- > 0;) {
    const double start = Now();
    if (outputs_[i].requires_grad())
      torch::autograd::backward({outputs_[i]}, {gradient});
    WaitFor(devices_[i]);
    step.timeline.ranks[i].push_back(
        {{static_cast<int32_t>(i), micro_batch, ActionKind::kBackward, false},
         start,
         Now()});
    if (i > 0) gradient = Transfer(inputs_[i].grad(), i, i - 1, step);
    outputs_[i].reset();
    inputs_[i].reset();
  }
}

SequentialStep SequentialStages::Run(int micro_batches) {
  SequentialStep step;
  step.timeline.ranks.resize(stages_.size());
  step.boundaries.resize(stages_.size() - 1);
  step.start_seconds = Now();
  for (int i = 0; i < micro_batches; ++i) {
    const at::Tensor share = RunForwardOf(i, step);
    step.loss = step.loss.defined() ? step.loss + share : share;
    RunBackwardOf(i, step);
  }
  step.end_seconds = Now();
  return step;
}

void SequentialStages::RunForward(int micro_batches) {
  at::NoGradGuard no_grad;
  SequentialStep unused;
  unused.timeline.ranks.resize(stages_.size());
  unused.boundaries.resize(stages_.size() - 1);
  for (int i = 0; i < micro_batches; ++i) RunForwardOf(i, unused);
}

}  // namespace rankwise
