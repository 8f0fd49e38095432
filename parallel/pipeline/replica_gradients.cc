#include "parallel/pipeline/replica_gradients.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros_like.h>

#include <cstdint>
#include <utility>

#include "parallel/device/moment.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"
#include "torch/csrc/distributed/c10d/comm.hpp"

namespace rankwise {
namespace {

// Python's DDP sends buffers in flat pieces of this size.
constexpr size_t kBroadcastBytes = size_t{250} << 20;

at::Tensor GradientOrZeros(const at::Tensor& parameter) {
  at::Tensor& gradient = parameter.mutable_grad();
  if (!gradient.defined()) gradient = at::zeros_like(parameter);
  return gradient;
}

}  // namespace

ReplicaGradients::ReplicaGradients(c10::intrusive_ptr<c10d::ProcessGroup> group,
                                   int replicas, bool skip_communication)
    : group_(std::move(group)),
      replicas_(replicas),
      skip_communication_(skip_communication) {}

ReplicaGradients::~ReplicaGradients() = default;

void ReplicaGradients::Start(const std::vector<at::Tensor>& parameters) {
  if (group_ == nullptr) return;
  at::NoGradGuard no_grad;
  Bucket bucket;
  std::vector<at::Tensor> pieces;
  for (const at::Tensor& parameter : parameters) {
    if (!parameter.requires_grad()) continue;
    bucket.gradients.push_back(GradientOrZeros(parameter));
    pieces.push_back(bucket.gradients.back().reshape({-1}));
  }
  if (pieces.empty()) return;
  bucket.flat = {at::cat(pieces)};
  if (!skip_communication_) bucket.work = group_->allreduce(bucket.flat);
  buckets_.push_back(std::move(bucket));
}

LaterSeconds ReplicaGradients::Finish() {
  if (buckets_.empty()) return 0;
  at::NoGradGuard no_grad;
  const c10::Device device = buckets_.front().flat.front().device();
  Moment start(device);
  for (Bucket& bucket : buckets_) {
    at::Tensor& sum = bucket.flat.front();
    if (bucket.work != nullptr) {
      bucket.work->wait();
      sum.div_(replicas_);
    }
    int64_t offset = 0;
    for (at::Tensor& gradient : bucket.gradients) {
      gradient.copy_(
          sum.narrow(0, offset, gradient.numel()).view(gradient.sizes()));
      offset += gradient.numel();
    }
  }
  buckets_.clear();
  return LaterSeconds(std::move(start), Moment(device));
}

LaterSeconds BroadcastBuffers(
    const c10::intrusive_ptr<c10d::ProcessGroup>& group,
    const std::vector<at::Tensor>& buffers) {
  if (group == nullptr || buffers.empty()) return 0;
  const c10::Device device = buffers.front().device();
  Moment start(device);
  c10d::broadcast_coalesced(group, buffers, kBroadcastBytes, /*rank=*/0);
  return LaterSeconds(std::move(start), Moment(device));
}

void AddUpSharedGradient(c10d::ProcessGroup& group, int peer, int tag,
                         const at::Tensor& weight) {
  at::NoGradGuard no_grad;
  at::Tensor gradient = GradientOrZeros(weight);
  std::vector<at::Tensor> mine = {gradient.contiguous()};
  std::vector<at::Tensor> theirs = {at::empty_like(mine[0])};
  // NCCL runs the two in the order of issue, which must be opposite on the two
  // sides.
  c10::intrusive_ptr<c10d::Work> works[2];
  if (group.getRank() < peer) {
    works[0] = group.send(mine, peer, tag);
    works[1] = group.recv(theirs, peer, tag);
  } else {
    works[0] = group.recv(theirs, peer, tag);
    works[1] = group.send(mine, peer, tag);
  }
  for (auto& work : works) work->wait();
  gradient.add_(theirs[0]);
}

}  // namespace rankwise
