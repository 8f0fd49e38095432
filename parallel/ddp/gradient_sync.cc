#include "parallel/ddp/gradient_sync.h"

#include <exception>
#include <map>
#include <optional>
#include <utility>

#include "ATen/core/grad_mode.h"
#include "ATen/ops/_foreach_copy.h"
#include "ATen/ops/zeros_like.h"
#include "absl/status/status.h"
#include "c10/util/Exception.h"
#include "parallel/comm/communicator.h"
#include "parallel/ddp/model_state.h"
#include "parallel/device/graph.h"
#include "third_party/absl/status_macros.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"
#include "torch/csrc/utils/tensor_flatten.h"
#include "torch/nn/module.h"

namespace rankwise {

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
    bucket.flat = {torch::utils::flatten_dense_tensors(bucket.gradients)};
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
    const auto mean =
        torch::utils::unflatten_dense_tensors(bucket.flat[0], bucket.gradients);
    at::_foreach_copy_(bucket.gradients, mean);  // one launch on a GPU
  }
  buckets_.clear();
  return start.has_value()
             ? PendingDuration(*std::move(start), DeviceEvent(device))
             : PendingDuration();
}

absl::StatusOr<std::unique_ptr<SimpleDataParallel>> SimpleDataParallel::Create(
    torch::nn::Module& module, const Group& group, bool skip_communication) {
  try {
    RETURN_IF_ERROR(VerifyModel(module, group));
    BroadcastFromFirst(ModelParameters(module), group);
    BroadcastFromFirst(ModelBuffers(module), group);
  } catch (const std::exception& error) {
    if (group.communicator() == nullptr) throw;
    return group.communicator()->ExplainFailure("setting up SimpleDataParallel",
                                                error);
  }
  std::unique_ptr<SimpleDataParallel> simple(
      new SimpleDataParallel(module, group, skip_communication));
  if (!simple->parameters_.empty()) return simple;
  return absl::InvalidArgumentError(
      "SimpleDataParallel has nothing to do: the model has no parameter that "
      "requires a gradient");
}

SimpleDataParallel::SimpleDataParallel(torch::nn::Module& module,
                                       const Group& group,
                                       bool skip_communication)
    : module_(module),
      group_(group),
      skip_communication_(skip_communication),
      gradients_(group, skip_communication) {
  for (const NamedTensor& item : ModelParameters(module)) {
    if (item.tensor.requires_grad()) parameters_.push_back(item.tensor);
  }
}

void SimpleDataParallel::BeforeForward() {
  step_syncs_ = sync_;
  if (buffers_stale_ && !skip_communication_)
    BroadcastFromFirst(ModelBuffers(module_), group_);
  buffers_stale_ = step_syncs_;
}

void SimpleDataParallel::AfterBackward() {
  exposed_ = 0;
  if (!step_syncs_) return;
  gradients_.Start(parameters_);
  exposed_ = gradients_.Finish();
}

}  // namespace rankwise
