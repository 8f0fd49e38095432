#include "parallel/ddp/gradient_sync.h"

#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "ATen/core/grad_mode.h"
#include "ATen/ops/cat.h"
#include "ATen/ops/zeros_like.h"
#include "c10/util/Exception.h"
#include "parallel/device/device_event.h"
#include "parallel/device/graph.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace rankwise {
namespace {

torch::Tensor Flatten(const std::vector<torch::Tensor>& gradients) {
  std::vector<torch::Tensor> pieces;
  for (const torch::Tensor& gradient : gradients)
    pieces.push_back(gradient.reshape({-1}));
  return at::cat(pieces);
}

void Unflatten(const torch::Tensor& flat,
               const std::vector<torch::Tensor>& gradients) {
  int64_t offset = 0;
  for (const torch::Tensor& gradient : gradients) {
    gradient.copy_(
        flat.narrow(0, offset, gradient.numel()).view(gradient.sizes()));
    offset += gradient.numel();
  }
}

}  // namespace

AllReduceSync::AllReduceSync(Group group, bool skip_communication)
    : group_(std::move(group)), skip_communication_(skip_communication) {}

AllReduceSync::~AllReduceSync() = default;

void AllReduceSync::Start(const std::vector<torch::Tensor>& parameters) {
  if (group_.process_group() == nullptr) return;
  at::NoGradGuard no_grad;
  std::map<c10::ScalarType, std::vector<torch::Tensor>> by_dtype;
  for (const torch::Tensor& parameter : parameters) {
    if (!parameter.requires_grad()) continue;
    torch::Tensor& gradient = parameter.mutable_grad();
    if (!gradient.defined()) gradient = at::zeros_like(parameter);
    TORCH_CHECK(!gradient.is_sparse(),
                "gradients are reduced in one dense piece here; use "
                "DistributedDataParallel for sparse embeddings");
    by_dtype[gradient.scalar_type()].push_back(gradient);
  }
  for (auto& [dtype, gradients] : by_dtype) {
    Bucket bucket{std::move(gradients), {}, nullptr};
    bucket.flat = {Flatten(bucket.gradients)};
    if (!skip_communication_)
      bucket.work = group_.process_group()->allreduce(bucket.flat);  // the sum
    buckets_.push_back(std::move(bucket));
  }
}

PendingDuration AllReduceSync::Finish() {
  if (buckets_.empty()) return 0;
  at::NoGradGuard no_grad;
  const c10::Device device = buckets_.front().flat[0].device();
  std::optional<DeviceEvent> start;
  if (!skip_communication_ && !IsCapturing(device)) start.emplace(device);
  for (Bucket& bucket : buckets_) {
    if (bucket.work != nullptr) {
      bucket.work->wait();
      bucket.flat[0].div_(group_.size());  // the mean
    }
    Unflatten(bucket.flat[0], bucket.gradients);
  }
  buckets_.clear();
  return start.has_value()
             ? PendingDuration(*std::move(start), DeviceEvent(device))
             : PendingDuration();
}

}  // namespace rankwise
