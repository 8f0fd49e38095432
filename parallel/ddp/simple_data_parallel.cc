#include "parallel/ddp/simple_data_parallel.h"

#include <exception>
#include <utility>

#include "absl/status/status.h"
#include "parallel/comm/communicator.h"
#include "parallel/ddp/model_state.h"
#include "third_party/absl/status_macros.h"
#include "torch/nn/module.h"

namespace rankwise {

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
