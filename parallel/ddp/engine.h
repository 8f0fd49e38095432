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
// c10::Error; Communicator::ExplainFailure turns it into a Status.
// Not thread-safe; all ranks must make the same calls in the same order.
#ifndef RANKWISE_PARALLEL_DDP_ENGINE_H_
#define RANKWISE_PARALLEL_DDP_ENGINE_H_

#include <cstdint>
#include <vector>

#include "parallel/device/later_seconds.h"
#include "torch/types.h"

namespace rankwise {

class DataParallelEngine {
 public:
  virtual ~DataParallelEngine() = default;

  // Before every training forward: broadcasts the buffers from rank 0 if the
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
  virtual bool sync() const = 0;

  // Seconds of the last synchronised backward in which communication was not
  // hidden by computation; 0 after a backward without sync, and when taken a
  // second time. On a CPU from the last bucket's launch to the end of backward.
  // On CUDA from where the device has finished backward's own work to where it
  // has the reduced gradients, by events: Wait only where the host may wait. 0
  // of a step that is being recorded into a graph.
  virtual LaterSeconds TakeExposedComm() = 0;

  // Bytes of each gradient bucket, in the order of their launch.
  virtual std::vector<int64_t> bucket_bytes() const = 0;
};

// Switches synchronisation off for a scope:
//   { NoSync guard(engine); ... micro-batches 1..K-1 ... }
//   ... micro-batch K synchronises ...
class NoSync {
 public:
  explicit NoSync(DataParallelEngine& engine)
      : engine_(engine), before_(engine.sync()) {
    engine_.SetSync(false);
  }
  ~NoSync() { engine_.SetSync(before_); }
  NoSync(const NoSync&) = delete;
  NoSync& operator=(const NoSync&) = delete;

 private:
  DataParallelEngine& engine_;
  const bool before_;
};

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_DDP_ENGINE_H_
