// SimpleDataParallel: data parallelism in its shortest form.
//
// After backward: flatten all gradients into one buffer, all-reduce it, divide
// by the world size, copy back. Nothing overlaps, so that the difference to
// DistributedDataParallel is what overlap is worth. Read this one first.
#ifndef RANKWISE_PARALLEL_DDP_SIMPLE_DATA_PARALLEL_H_
#define RANKWISE_PARALLEL_DDP_SIMPLE_DATA_PARALLEL_H_

#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "parallel/comm/group.h"
#include "parallel/ddp/engine.h"
#include "parallel/ddp/gradient_sync.h"
#include "parallel/device/device_event.h"
#include "torch/types.h"

namespace torch::nn {
class Module;
}

namespace rankwise {

class SimpleDataParallel : public DataParallelEngine {
 public:
  // Checks and broadcasts the model as DistributedDataParallel::Create does. A
  // collective call. The module and the group's communicator must outlive the
  // result.
  // With `skip_communication`, for comparison, gradients are flattened and put
  // back, but they and the buffers stay the rank's own.
  static absl::StatusOr<std::unique_ptr<SimpleDataParallel>> Create(
      torch::nn::Module& module, const Group& group,
      bool skip_communication = false);

  void BeforeForward() override;
  void BeforeBackward(const std::vector<torch::Tensor>&) override {}

  // The all-reduces, one per dtype. A parameter that needs a gradient but got
  // none takes part as zeros, so that ranks may use different parameters.
  void AfterBackward() override;

  void SetSync(bool sync) override { sync_ = sync; }
  PendingDuration TakeExposedComm() override {
    return std::exchange(exposed_, PendingDuration());
  }

 private:
  SimpleDataParallel(torch::nn::Module& module, const Group& group,
                     bool skip_communication);

  torch::nn::Module& module_;
  const Group group_;
  const bool skip_communication_;
  std::vector<torch::Tensor> parameters_;  // those that need gradients
  AllReduceSync gradients_;
  bool sync_ = true;
  bool step_syncs_ = true;  // the step under way reduces gradients
  bool buffers_stale_ = true;
  PendingDuration exposed_;
};

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_DDP_SIMPLE_DATA_PARALLEL_H_
