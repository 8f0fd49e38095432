#include "parallel/ddp/model_state.h"

#include <functional>
#include <unordered_set>

#include "c10/util/intrusive_ptr.h"
#include "parallel/comm/communicator.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"
#include "torch/csrc/distributed/c10d/comm.hpp"
#include "torch/nn/module.h"
#include "torch/nn/modules/embedding.h"

namespace rankwise {
namespace {

using torch::nn::Module;

// Python's DDP sends parameters and buffers in flat pieces of this size.
constexpr size_t kBroadcastBytes = size_t{250} << 20;

// Calls `visit(prefix, module)` for a module and then its children.
void Walk(const Module& module, const std::string& prefix,
          const std::function<void(const std::string&, const Module&)>& visit) {
  visit(prefix, module);
  for (const auto& child : module.named_children()) {
    Walk(*child.value(), prefix + child.key() + ".", visit);
  }
}

bool HasSparseGradient(const Module& module) {
  if (const auto* embedding = module.as<torch::nn::EmbeddingImpl>()) {
    return embedding->options.sparse();
  }
  if (const auto* bag = module.as<torch::nn::EmbeddingBagImpl>()) {
    return bag->options.sparse();
  }
  return false;
}

// Appends tensors, each only once.
class Collector {
 public:
  void Add(std::string name, const torch::Tensor& tensor, bool sparse) {
    if (!tensor.defined()) return;
    if (!seen_.insert(tensor.unsafeGetTensorImpl()).second) return;
    tensors_.push_back({std::move(name), tensor, sparse});
  }
  std::vector<NamedTensor> Take() { return std::move(tensors_); }

 private:
  std::unordered_set<const c10::TensorImpl*> seen_;
  std::vector<NamedTensor> tensors_;
};

}  // namespace

std::vector<NamedTensor> ModelParameters(const Module& module) {
  Collector collector;
  Walk(module, "", [&](const std::string& prefix, const Module& part) {
    const bool sparse = HasSparseGradient(part);
    for (const auto& item : part.named_parameters(/*recurse=*/false)) {
      collector.Add(prefix + item.key(), item.value(), sparse);
    }
  });
  return collector.Take();
}

std::vector<NamedTensor> ModelBuffers(const Module& module) {
  Collector collector;
  Walk(module, "", [&](const std::string& prefix, const Module& part) {
    for (const auto& item : part.named_buffers(/*recurse=*/false)) {
      collector.Add(prefix + item.key(), item.value(), /*sparse=*/false);
    }
  });
  return collector.Take();
}

void BroadcastFromRankZero(const std::vector<NamedTensor>& tensors,
                           Communicator& communicator) {
  if (tensors.empty()) return;
  std::vector<torch::Tensor> detached;
  for (const NamedTensor& item : tensors) {
    detached.push_back(item.tensor.detach());
  }
  c10d::broadcast_coalesced(communicator.process_group(), detached,
                            kBroadcastBytes, /*rank=*/0);
}

}  // namespace rankwise
