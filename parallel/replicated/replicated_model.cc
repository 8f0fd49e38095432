#include "parallel/replicated/replicated_model.h"

#include <ATen/Parallel.h>
#include <ATen/ThreadLocalState.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/as_strided.h>
#include <ATen/ops/cat.h>
#include <c10/core/DeviceGuard.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/autograd.h>

#include <exception>
#include <utility>

namespace rankwise {
namespace {

// Always copies, even on the same device.
at::Tensor CopyTo(c10::Device device, const at::Tensor& tensor) {
  return tensor.to(tensor.options().device(device), /*non_blocking=*/true,
                   /*copy=*/true);
}

// Returns a part of both tensors that no other slice touches. Slices follow the
// memory order if both tensors have the same one without gaps; otherwise the
// first slice is everything.
std::pair<at::Tensor, at::Tensor> SliceOf(const at::Tensor& a,
                                          const at::Tensor& b, size_t slice,
                                          size_t slices) {
  if (slices == 1) return {a, b};
  if (!a.is_non_overlapping_and_dense() || a.strides() != b.strides())
    return slice == 0 ? std::pair(a, b) : std::pair(at::Tensor(), at::Tensor());
  const int64_t numbers = a.numel();
  const auto bound = [&](size_t i) {
    return numbers * static_cast<int64_t>(i) / static_cast<int64_t>(slices);
  };
  const auto part = [&](const at::Tensor& tensor) {
    return at::as_strided(tensor, {bound(slice + 1) - bound(slice)}, {1},
                          tensor.storage_offset() + bound(slice));
  };
  return {part(a), part(b)};
}

void CheckAlike(const std::vector<at::Tensor>& of_model,
                const std::vector<at::Tensor>& of_copy) {
  TORCH_CHECK(of_model.size() == of_copy.size(), "a copy of the model has ",
              of_copy.size(), " tensors, and the model ", of_model.size());
  for (size_t i = 0; i < of_model.size(); ++i) {
    TORCH_CHECK(of_model[i].sizes() == of_copy[i].sizes(), "tensor ", i,
                " of a copy of the model has another shape than the model's");
  }
}

}  // namespace

ReplicatedModel::ReplicatedModel(
    std::vector<std::shared_ptr<torch::nn::Module>> replicas,
    const ReplicatedConfig& config)
    : config_(config),
      replicas_(std::move(replicas)),
      threads_(static_cast<int>(replicas_.size()) - 1,
               /*numa_node_id=*/-1,
               // OpenMP's number of threads is per thread.
               [] { at::init_num_threads(); }) {
  TORCH_CHECK(replicas_.size() == config_.devices.size(), replicas_.size(),
              " replicas on ", config_.devices.size(), " devices");
  for (const auto& replica : replicas_) {
    parameters_.push_back(replica->parameters());
    buffers_.push_back(replica->buffers());
    CheckAlike(parameters_[0], parameters_.back());
    CheckAlike(buffers_[0], buffers_.back());
  }
  if (config_.persistent_copies) ShareParameters();
}

void ReplicatedModel::ShareParameters() {
  for (size_t i = 1; i < replicas_.size(); ++i) {
    if (config_.devices[i] != config_.devices[0]) continue;
    for (size_t p = 0; p < parameters_[0].size(); ++p)
      parameters_[i][p].set_data(parameters_[0][p]);
  }
}

void ReplicatedModel::RunOnThreads(size_t count,
                                   const std::function<void(size_t)>& body) {
  const at::ThreadLocalState callers;
  std::vector<std::exception_ptr> errors(count);
  const auto guarded = [&](size_t i) {
    const at::ThreadLocalStateGuard state(callers);
    try {
      body(i);
    } catch (...) {
      errors[i] = std::current_exception();
    }
  };
  for (size_t i = 1; i < count; ++i)
    threads_.run([&guarded, i] { guarded(i); });
  guarded(0);
  threads_.waitWorkComplete();
  for (const std::exception_ptr& error : errors) {
    if (error != nullptr) std::rethrow_exception(error);
  }
}

std::vector<at::Tensor> ReplicatedModel::Scatter(
    const at::Tensor& batch) const {
  std::vector<at::Tensor> parts =
      batch.chunk(static_cast<int64_t>(replicas_.size()));
  for (size_t i = 1; i < parts.size(); ++i)
    parts[i] = CopyTo(config_.devices[i], parts[i]);
  return parts;
}

void ReplicatedModel::Replicate(size_t count) {
  const at::NoGradGuard no_grad;
  const auto replicate = [this](size_t replica, at::Tensor& copy,
                                const at::Tensor& source) {
    if (!config_.persistent_copies) {
      copy.set_data(CopyTo(config_.devices[replica], source));
    } else if (!copy.is_alias_of(source)) {
      copy.copy_(source, /*non_blocking=*/true);
    }
  };
  for (size_t i = 1; i < count; ++i) {
    for (size_t p = 0; p < parameters_[0].size(); ++p)
      replicate(i, parameters_[i][p], parameters_[0][p]);
    for (size_t b = 0; b < buffers_[0].size(); ++b)
      replicate(i, buffers_[i][b], buffers_[0][b]);
    replicas_[i]->train(replicas_[0]->is_training());
  }
}

std::vector<at::Tensor> ReplicatedModel::Forward(
    size_t count, const std::function<at::Tensor(size_t replica)>& forward) {
  std::vector<at::Tensor> outputs(count);
  RunOnThreads(count, [&](size_t i) {
    const c10::DeviceGuard device(config_.devices[i]);
    at::Tensor output = forward(i);
    outputs[i] = output.dim() == 0 ? output.reshape({1}) : std::move(output);
  });
  return outputs;
}

at::Tensor ReplicatedModel::Gather(
    const std::vector<at::Tensor>& outputs) const {
  std::vector<at::Tensor> here;
  for (const at::Tensor& output : outputs)
    here.push_back(output.detach().to(config_.devices[0]));
  at::Tensor gathered = here.size() == 1 ? here[0] : at::cat(here);
  return gathered.set_requires_grad(at::GradMode::is_enabled());
}

std::vector<at::Tensor> ReplicatedModel::ScatterGradient(
    const at::Tensor& gradient, const std::vector<at::Tensor>& outputs) const {
  std::vector<int64_t> sizes;
  for (const at::Tensor& output : outputs) sizes.push_back(output.size(0));
  std::vector<at::Tensor> parts = gradient.split_with_sizes(sizes);
  for (size_t i = 1; i < parts.size(); ++i)
    parts[i] = CopyTo(config_.devices[i], parts[i]);
  return parts;
}

void ReplicatedModel::Backward(const std::vector<at::Tensor>& outputs,
                               const std::vector<at::Tensor>& gradients) {
  RunOnThreads(outputs.size(), [&](size_t i) {
    const c10::DeviceGuard device(config_.devices[i]);
    torch::autograd::backward({outputs[i]}, {gradients[i]});
  });
}

void ReplicatedModel::Reduce(size_t count) {
  if (config_.persistent_copies && config_.devices[0].is_cpu()) {
    RunOnThreads(count, [&](size_t i) { ReduceSlice(i, count, count); });
  } else {
    ReduceSlice(0, 1, count);
  }
  for (size_t i = 1; i < count; ++i) {
    for (at::Tensor& parameter : parameters_[i])
      parameter.mutable_grad().reset();
  }
}

void ReplicatedModel::ReduceSlice(size_t slice, size_t slices, size_t count) {
  const at::NoGradGuard no_grad;
  for (size_t p = 0; p < parameters_[0].size(); ++p) {
    const at::Tensor& sum = parameters_[0][p].grad();
    for (size_t i = 1; i < count; ++i) {
      const at::Tensor& gradient = parameters_[i][p].grad();
      if (!gradient.defined()) continue;
      TORCH_CHECK(sum.defined(), "parameter ", p, " has a gradient in replica ",
                  i, " and none in the model");
      auto [into, from] =
          SliceOf(sum, gradient.to(config_.devices[0]), slice, slices);
      if (into.defined()) into.add_(from);
    }
  }
}

}  // namespace rankwise
