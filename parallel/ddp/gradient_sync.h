// Averaging the gradients of data-parallel ranks: GradientSync, which does not
// depend on what computes them; and DataParallelEngine, which a training loop
// drives, with its shortest implementation.
#ifndef RANKWISE_PARALLEL_DDP_GRADIENT_SYNC_H_
#define RANKWISE_PARALLEL_DDP_GRADIENT_SYNC_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "parallel/comm/group.h"
#include "parallel/device/device_event.h"
#include "torch/types.h"

namespace c10d {
class Work;
}  // namespace c10d
namespace torch::nn {
class Module;
}

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
  // Without a process group nothing is exchanged, or even touched.
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

// The interface of data parallelism for a training loop.
//
// One step, with gradient accumulation over K micro-batches:
//
//   for (int k = 0; k < K; ++k) {
//     engine.SetSync(k + 1 == K);
//     engine.BeforeForward();
//     torch::Tensor loss = LossOf(model, batch[k]) / K;
//     engine.BeforeBackward({loss});
//     loss.backward();
//     engine.AfterBackward();
//   }
//   optimizer.step();  // p.grad() is now the mean over ranks, on every rank
//   // Then zero gradients in place or reset them to undefined; either works.
//
// A communication failure leaves any of these calls, or backward() itself, as a
// c10::Error; the group's communicator turns it into a Status
// (Communicator::ExplainFailure).
// Not thread-safe; all ranks must make the same calls in the same order.
class DataParallelEngine {
 public:
  virtual ~DataParallelEngine() = default;

  // Before every training forward: broadcasts the first rank's buffers if the
  // last backward was synchronised, and prepares the reduction.
  virtual void BeforeForward() = 0;

  // After forward, before backward(). `outputs`: the tensors backward() starts
  // from, usually {loss}; parameters that do not lead to them are the unused
  // ones under find_unused_parameters.
  virtual void BeforeBackward(const std::vector<torch::Tensor>& outputs) = 0;

  // After backward(). With sync, every parameter's gradient is then the mean of
  // the ranks' gradients (on CUDA: once the current stream gets there).
  virtual void AfterBackward() = 0;

  // false: the next steps only accumulate local gradients ("no_sync"); takes
  // effect at the next BeforeForward.
  virtual void SetSync(bool sync) = 0;

  // Seconds of the last synchronised backward in which communication was not
  // hidden by computation; 0 after a backward without sync, and when taken a
  // second time. On a CPU from the last bucket's launch to the end of backward.
  // On CUDA from where the device has finished backward's own work to where it
  // has the reduced gradients, by events: Wait only where the host may wait. 0
  // of a step that is being captured into a graph.
  virtual PendingDuration TakeExposedComm() = 0;

  // The order in which gradients are added up, where it changes between steps,
  // and taking it over; "" and nothing, where it does not. An engine that goes
  // on from a checkpoint needs it for equal sums. Collective, between steps.
  virtual std::string BucketOrder() { return ""; }
  virtual void UseBucketOrder(const std::string& /*order*/) {}
};

// Data parallelism in its shortest form: after backward all gradients are
// flattened into one buffer, all-reduced, divided by the group's size and
// copied back. Nothing overlaps, so that the difference to
// DistributedDataParallel is what overlap is worth. Read this one first.
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

#endif  // RANKWISE_PARALLEL_DDP_GRADIENT_SYNC_H_
