#include "parallel/pipeline/replica_gradients.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>

#include <cstdint>
#include <utility>

#include "parallel/device/moment.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace rankwise {

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
    if (!parameter.grad().defined()) continue;
    bucket.gradients.push_back(parameter.grad());
    pieces.push_back(parameter.grad().reshape({-1}));
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

void AddUpSharedGradient(c10d::ProcessGroup& group, int peer, int tag,
                         at::Tensor gradient) {
  at::NoGradGuard no_grad;
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
