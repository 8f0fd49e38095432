// Averaging the gradients of data-parallel ranks. GradientSync is independent
// of how gradients are computed. DataParallelEngine is the training loop's
// interface; its shortest implementation is here.
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

// Not thread-safe. All ranks of the group must make the same calls with the
// same parameters in the same order. Throws the process group's exceptions.
//
//   sync->Start(stage.Parameters());  // after the stage's last gradient
//   ...                               // other stages' backwards
//   exposed += sync->Finish();
class GradientSync {
 public:
  virtual ~GradientSync() = default;

  // Starts synchronising the gradients of those `parameters` that require one,
  // ordered after the work already on the current stream. A parameter without a
  // gradient contributes zeros, so ranks may use different parameters. The
  // gradients must not be touched until Finish.
  virtual void Start(const std::vector<torch::Tensor>& parameters) = 0;

  // Blocks until the gradients of every Start are in place (on an accelerator,
  // blocks the current stream, not the host). Returns the time blocked; 0 while
  // the step is being captured into a graph.
  virtual PendingDuration Finish() = 0;
};

// Gives every rank the mean of the ranks' gradients, with one all-reduce per
// Start and dtype over a flat copy.
class AllReduceSync : public GradientSync {
 public:
  // Does nothing if the group has no process group. `skip_communication`, for
  // comparison, flattens and unflattens gradients but leaves them local.
  explicit AllReduceSync(Group group, bool skip_communication = false);
  ~AllReduceSync() override;

  void Start(const std::vector<torch::Tensor>& parameters) override;
  PendingDuration Finish() override;

 private:
  struct Bucket {
    std::vector<torch::Tensor> gradients;  // of one dtype
    std::vector<torch::Tensor> flat;       // one tensor, the sum being reduced
    c10::intrusive_ptr<c10d::Work> work;   // nullptr without communication
  };
  const Group group_;
  const bool skip_communication_;
  std::vector<Bucket> buckets_;
};

// The training loop's interface to data parallelism.
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
// A communication failure throws c10::Error from any of these calls or from
// backward() itself; Communicator::ExplainFailure of the group's communicator
// converts it to a Status.
// Not thread-safe; all ranks must make the same calls in the same order.
class DataParallelEngine {
 public:
  virtual ~DataParallelEngine() = default;

  // Call before every training forward. Broadcasts the first rank's buffers if
  // the last backward was synchronised, and prepares the reduction.
  virtual void BeforeForward() = 0;

  // Call after forward, before backward(). `outputs`: the tensors that
  // backward() starts from, usually {loss}; find_unused_parameters treats
  // parameters that do not lead to them as unused.
  virtual void BeforeBackward(const std::vector<torch::Tensor>& outputs) = 0;

  // Call after backward(). With sync, every parameter's gradient is then the
  // mean of the ranks' gradients (on CUDA, in the order of the current stream).
  virtual void AfterBackward() = 0;

  // If false, later steps only accumulate local gradients ("no_sync"). Takes
  // effect at the next BeforeForward.
  virtual void SetSync(bool sync) = 0;

  // Returns and resets the exposed communication seconds of the last
  // synchronised backward; 0 after a backward without sync and while the step
  // is being captured into a graph. On a CPU, measured from the last bucket's
  // launch to the end of backward. On CUDA, measured by events from the end of
  // backward's own work to the arrival of the reduced gradients: call
  // PendingDuration::Wait only where the host may block.
  virtual PendingDuration TakeExposedComm() = 0;

  // Returns the order in which gradients are summed if it changes between
  // steps, else "". UseBucketOrder restores it; an engine that continues from a
  // checkpoint needs it for equal sums. Collective, between steps.
  virtual std::string BucketOrder() { return ""; }
  virtual void UseBucketOrder(const std::string& /*order*/) {}
};

// Data parallelism in its shortest form: after backward, all gradients are
// flattened into one buffer, all-reduced, divided by the group's size and
// copied back. Nothing overlaps, so the difference from DistributedDataParallel
// is the benefit of overlap. Read this class first.
class SimpleDataParallel : public DataParallelEngine {
 public:
  // Verifies and broadcasts the model as DistributedDataParallel::Create does.
  // A collective call. The module and the group's communicator must outlive the
  // result. `skip_communication`, for comparison, flattens and unflattens
  // gradients but leaves them and the buffers local.
  static absl::StatusOr<std::unique_ptr<SimpleDataParallel>> Create(
      torch::nn::Module& module, const Group& group,
      bool skip_communication = false);

  void BeforeForward() override;
  void BeforeBackward(const std::vector<torch::Tensor>&) override {}

  // Issues one all-reduce per dtype. A parameter that requires a gradient but
  // has none contributes zeros, so ranks may use different parameters.
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
  std::vector<torch::Tensor> parameters_;  // those that require gradients
  AllReduceSync gradients_;
  bool sync_ = true;
  bool step_syncs_ = true;  // whether the current step reduces gradients
  bool buffers_stale_ = true;
  PendingDuration exposed_;
};

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_DDP_GRADIENT_SYNC_H_
