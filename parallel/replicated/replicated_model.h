// Data parallelism within a process, as torch.nn.DataParallel does it: replicas
// of one model on several devices, a thread for each, and a first device that
// does more than the others: it has the weights, the gathered outputs and the
// loss.
//
// LibTorch has torch::nn::parallel::data_parallel (data_parallel.h of its C++
// interface). This does not use it: it scatters and gathers between CUDA
// devices only, needs modules that can be cloned, allocates and initialises the
// clones at every call, and hands over one autograd graph, of which one thread
// runs all that is on the CPU. Here the graph ends where outputs are gathered,
// so that backward has a thread for each replica as well, and every part of a
// step is a call of its own, which can be timed.
#ifndef RANKWISE_PARALLEL_REPLICATED_REPLICATED_MODEL_H_
#define RANKWISE_PARALLEL_REPLICATED_REPLICATED_MODEL_H_

#include <c10/core/Device.h>
#include <torch/nn/module.h>
#include <torch/types.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

namespace rankwise {

struct ReplicatedConfig {
  // Of each replica; the first one is the model itself. All of one type. They
  // may repeat: on a machine without accelerators each "cpu" is a slot, and
  // what goes from slot to slot is copied as between devices.
  std::vector<c10::Device> devices = {c10::kCPU};
  // The copies stay from step to step: they share the model's parameters if
  // they are on its device, or else have them copied into place; and all
  // threads sum gradients that are in the host's memory. Without it Replicate
  // allocates the copies' parameters anew and the caller sums their gradients
  // alone, as DataParallel does.
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
// Threads begin and end with the call, the caller being one of them. Throws
// what torch throws, or the first replica that has an exception. Not
// thread-safe.
class ReplicatedModel {
 public:
  // `replicas`: the model, and for each other device a module there with the
  // same parameters and buffers in the same order, of any values.
  ReplicatedModel(std::vector<std::shared_ptr<torch::nn::Module>> replicas,
                  const ReplicatedConfig& config);

  // [B, ...] on the first device as parts along the first dimension, each on
  // its replica's device; as at::chunk divides it, so there may be fewer parts
  // than replicas.
  std::vector<at::Tensor> Scatter(const at::Tensor& batch) const;

  // Gives the first `count` replicas the model's parameters, buffers and mode
  // (train or eval). What forward does to the buffers of the others is lost.
  void Replicate(size_t count);

  // forward(i) for the first `count` replicas, each on a thread with the
  // caller's gradient mode: one part's output, [b, ...]; a scalar becomes [1].
  std::vector<at::Tensor> Forward(
      size_t count, const std::function<at::Tensor(size_t replica)>& forward);

  // The outputs as one tensor on the first device; a leaf that requires a
  // gradient, unless gradients are switched off.
  at::Tensor Gather(const std::vector<at::Tensor>& outputs) const;

  // The gradient of what Gather returned, divided as `outputs` were.
  std::vector<at::Tensor> ScatterGradient(
      const at::Tensor& gradient, const std::vector<at::Tensor>& outputs) const;

  // Adds the gradients of each replica's output to its parameters', each on a
  // thread.
  void Backward(const std::vector<at::Tensor>& outputs,
                const std::vector<at::Tensor>& gradients);

  // Adds the gradients of the other replicas to the model's, replica by
  // replica, and drops them.
  void Reduce(size_t count);

 private:
  void ShareParameters();
  // Adds one of `slices` parts of every gradient.
  void ReduceSlice(size_t slice, size_t slices, size_t count);

  const ReplicatedConfig config_;
  const std::vector<std::shared_ptr<torch::nn::Module>> replicas_;
  std::vector<std::vector<at::Tensor>> parameters_, buffers_;  // by replica
};

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_REPLICATED_REPLICATED_MODEL_H_
