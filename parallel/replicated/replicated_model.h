// Data parallelism within a process, as torch.nn.DataParallel does it: replicas
// of one model on several devices, a thread for each, and a first device that
// does more than the others: it has the weights, the gathered outputs and the
// loss.
//
// LibTorch has torch::nn::parallel::data_parallel (data_parallel.h of its C++
// interface). This does not use it: it scatters and gathers between CUDA
// devices only, needs modules that can be cloned, allocates and initialises the
// clones at every call, and hands over one autograd graph, of which one thread
// runs everything on the CPU. Here the graph ends where outputs are gathered,
// so that backward has a thread for each replica as well, and every part of a
// step is a call of its own, which can be timed.
#ifndef RANKWISE_PARALLEL_REPLICATED_REPLICATED_MODEL_H_
#define RANKWISE_PARALLEL_REPLICATED_REPLICATED_MODEL_H_

#include <c10/core/Device.h>
#include <c10/core/thread_pool.h>
#include <torch/nn/module.h>
#include <torch/types.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

namespace rankwise {

struct ReplicatedConfig {
  // One for each replica, all of one type; the first replica is the model
  // itself. They may repeat: on a machine without accelerators each "cpu" is a
  // slot, and tensors are copied from slot to slot as between devices.
  std::vector<c10::Device> devices = {c10::kCPU};
  // True: the copies stay from step to step. On the model's device they share
  // its parameters, elsewhere these are copied into the same memory; and all
  // threads sum the gradients of replicas on the CPU. False, as in
  // DataParallel: Replicate allocates new memory for the copies' parameters,
  // and the caller's thread alone sums the gradients.
  bool keeps_copies = false;
};

// The parts of a step, in order:
//
//   const auto parts = replicas.Scatter(batch);
//   replicas.Replicate(parts.size());
//   const auto outputs = replicas.Forward(parts.size(), forward);
//   const at::Tensor gathered = replicas.Gather(outputs);
//   Loss(gathered).backward();
//   replicas.Backward(outputs,
//                     replicas.ScatterGradient(gathered.grad(), outputs));
//   replicas.Reduce(parts.size());
//   ... update of the model's parameters ...
//
// A call that uses threads waits for them; the first replica's is the
// caller's. Throws what torch throws; where several replicas
// throw, the exception of the first of them. Not thread-safe.
class ReplicatedModel {
 public:
  // `replicas`: the model, and for each other device a module on it with the
  // same parameters and buffers in the same order; their values do not matter.
  ReplicatedModel(std::vector<std::shared_ptr<torch::nn::Module>> replicas,
                  const ReplicatedConfig& config);

  // Divides [B, ...] on the first device along its first dimension, as
  // at::chunk does, into parts on the replicas' devices. There may be fewer
  // parts than replicas.
  std::vector<at::Tensor> Scatter(const at::Tensor& batch) const;

  // Gives the first `count` replicas the model's parameters, buffers and mode
  // (train or eval). What a forward did to the copies' buffers is lost.
  void Replicate(size_t count);

  // Calls forward(i) for the first `count` replicas, each on a thread with the
  // caller's gradient mode. Returns their outputs, [b, ...]; scalars become
  // [1].
  std::vector<at::Tensor> Forward(
      size_t count, const std::function<at::Tensor(size_t replica)>& forward);

  // The outputs as one tensor on the first device; a leaf that requires a
  // gradient, unless gradients are switched off.
  at::Tensor Gather(const std::vector<at::Tensor>& outputs) const;

  // The gradient of what Gather returned, divided as `outputs` were.
  std::vector<at::Tensor> ScatterGradient(
      const at::Tensor& gradient, const std::vector<at::Tensor>& outputs) const;

  // Runs each replica's backward on a thread: adds to the gradients of its
  // parameters.
  void Backward(const std::vector<at::Tensor>& outputs,
                const std::vector<at::Tensor>& gradients);

  // Adds the gradients of the first `count` replicas to the model's, in the
  // order of the replicas, and drops those of the copies.
  void Reduce(size_t count);

 private:
  void ShareParameters();
  // Calls body(i) for i below `count`, all at the same time; body(0) on the
  // caller's thread.
  void RunOnThreads(size_t count, const std::function<void(size_t)>& body);
  // Adds one of `slices` parts of every gradient.
  void ReduceSlice(size_t slice, size_t slices, size_t count);

  const ReplicatedConfig config_;
  const std::vector<std::shared_ptr<torch::nn::Module>> replicas_;
  std::vector<std::vector<at::Tensor>> parameters_, buffers_;  // by replica
  // All but the caller's. They stay from step to step: LibTorch keeps a little
  // memory for each thread that ever was.
  c10::ThreadPool threads_;
};

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_REPLICATED_REPLICATED_MODEL_H_
