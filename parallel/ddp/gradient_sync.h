// What makes the gradients of data-parallel ranks one, whoever computes them
// and however they are shared out.
#ifndef RANKWISE_PARALLEL_DDP_GRADIENT_SYNC_H_
#define RANKWISE_PARALLEL_DDP_GRADIENT_SYNC_H_

#include <memory>
#include <vector>

#include "parallel/comm/group.h"
#include "parallel/device/device_event.h"
#include "torch/types.h"

namespace c10d {
class Work;
}  // namespace c10d

namespace rankwise {

// Not thread-safe. All ranks of the group make the same calls, with the same
// parameters in the same order. Throws what the process group throws.
//
//   sync->Start(stage.Parameters());  // its last gradient is there
//   ...                               // other stages' backwards
//   exposed += sync->Finish();
class GradientSync {
 public:
  virtual ~GradientSync() = default;

  // Starts synchronising the gradients of those of `parameters` that require
  // one, after what the current stream has been given. A parameter without a
  // gradient counts as zeros, so that ranks may use different parameters. Leave
  // them alone until Finish.
  virtual void Start(const std::vector<torch::Tensor>& parameters) = 0;

  // Blocks until the gradients of every Start are in place (on an accelerator
  // the current stream, not the host). Returns how long that took; 0 in a step
  // that is being captured into a graph.
  virtual PendingDuration Finish() = 0;
};

// Every rank gets the mean of the ranks' gradients: one all-reduce per Start
// and dtype, over a flat copy.
class AllReduceSync : public GradientSync {
 public:
  // With one rank and no process group nothing is exchanged, or even touched.
  // `skip_communication`, for comparison: gradients are put together and back,
  // but stay the rank's own.
  explicit AllReduceSync(Group group, bool skip_communication = false);
  ~AllReduceSync() override;

  void Start(const std::vector<torch::Tensor>& parameters) override;
  PendingDuration Finish() override;

 private:
  struct Bucket {
    std::vector<torch::Tensor> gradients;  // of one dtype
    std::vector<torch::Tensor> flat;       // one tensor, the sum in flight
    c10::intrusive_ptr<c10d::Work> work;   // null without communication
  };
  const Group group_;
  const bool skip_communication_;
  std::vector<Bucket> buckets_;
};

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_DDP_GRADIENT_SYNC_H_
