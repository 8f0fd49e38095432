// What a training loop asks of data parallelism, whoever implements it.
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
#ifndef RANKWISE_PARALLEL_DDP_ENGINE_H_
#define RANKWISE_PARALLEL_DDP_ENGINE_H_

#include <vector>

#include "parallel/device/device_event.h"
#include "torch/types.h"

namespace rankwise {

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
};

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_DDP_ENGINE_H_
