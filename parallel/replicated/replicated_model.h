// Data parallelism within a process, like torch.nn.DataParallel: replicas of
// one model on several devices, one thread each. The first device also holds
// the weights, the gathered outputs and the loss.
//
// LibTorch's torch::nn::parallel::data_parallel is not used: it scatters and
// gathers only between CUDA devices, needs cloneable modules, allocates and
// initialises the clones in every call, and returns one autograd graph, which a
// single thread runs on the CPU. Here the graph ends at the gathered outputs,
// so that backward also has a thread per replica, and every part of a step is a
// separate call that can be timed.
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
  // One per replica, all of one type; the first replica is the model itself.
  // Devices may repeat: without accelerators each "cpu" is a slot, and tensors
  // are copied between slots as between devices.
  std::vector<c10::Device> devices = {c10::kCPU};
  // If true, the copies persist between steps: on the model's device they share
  // its parameters, on other devices parameters are copied into the same
  // memory; CPU gradients are summed by all threads. If false, as in
  // DataParallel, Replicate allocates new memory for the copies' parameters,
  // and only the caller's thread sums the gradients.
  bool persistent_copies = false;
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
// A call that uses threads blocks until they finish; the first replica runs on
// the caller's thread. Rethrows torch's exceptions, that of the first failing
// replica if several throw. Not thread-safe.
class ReplicatedModel {
 public:
  // `replicas`: the model, and for every other device a module on it with the
  // same parameters and buffers in the same order; their values do not matter.
  ReplicatedModel(std::vector<std::shared_ptr<torch::nn::Module>> replicas,
                  const ReplicatedConfig& config);

  // Divides [B, ...] on the first device along its first dimension, as
  // at::chunk does, into parts on the replicas' devices. There may be fewer
  // parts than replicas.
  std::vector<at::Tensor> Scatter(const at::Tensor& batch) const;

  // Gives the first `count` replicas the model's parameters, buffers and mode
  // (train or eval). Discards forward's changes to the copies' buffers.
  void Replicate(size_t count);

  // Calls forward(i) for the first `count` replicas, each on a thread with the
  // caller's gradient mode. Returns their outputs, [b, ...]; scalars become
  // [1].
  std::vector<at::Tensor> Forward(
      size_t count, const std::function<at::Tensor(size_t replica)>& forward);

  // Concatenates the outputs on the first device. The result is a leaf that
  // requires a gradient, unless gradients are disabled.
  at::Tensor Gather(const std::vector<at::Tensor>& outputs) const;

  // Divides the gradient of Gather's result like `outputs`.
  std::vector<at::Tensor> ScatterGradient(
      const at::Tensor& gradient, const std::vector<at::Tensor>& outputs) const;

  // Runs each replica's backward on a thread and accumulates the gradients of
  // its parameters.
  void Backward(const std::vector<at::Tensor>& outputs,
                const std::vector<at::Tensor>& gradients);

  // Adds the gradients of the first `count` replicas to the model's, in replica
  // order, and resets those of the copies.
  void Reduce(size_t count);

 private:
  void ShareParameters();
  // Calls body(i) for i < `count` concurrently, body(0) on the caller's thread.
  void RunOnThreads(size_t count, const std::function<void(size_t)>& body);
  // Adds part `slice` of `slices` of every gradient.
  void ReduceSlice(size_t slice, size_t slices, size_t count);

  const ReplicatedConfig config_;
  const std::vector<std::shared_ptr<torch::nn::Module>> replicas_;
  std::vector<std::vector<at::Tensor>> parameters_, buffers_;  // by replica
  // All threads but the caller's. They persist between steps, because LibTorch
  // leaks a little memory per thread.
  c10::ThreadPool threads_;
};

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_REPLICATED_REPLICATED_MODEL_H_
