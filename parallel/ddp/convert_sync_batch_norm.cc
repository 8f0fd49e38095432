#include "parallel/ddp/convert_sync_batch_norm.h"

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "parallel/ddp/sync_batch_norm.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"
#include "torch/nn/modules/batchnorm.h"
#include "torch/nn/modules/container/moduledict.h"
#include "torch/nn/modules/container/modulelist.h"
#include "torch/nn/modules/container/sequential.h"

namespace rankwise {
namespace {

using torch::nn::Module;
using ModulePtr = std::shared_ptr<Module>;

bool IsBatchNorm(const Module& module) {
  return module.as<torch::nn::BatchNorm1d>() != nullptr ||
         module.as<torch::nn::BatchNorm2d>() != nullptr ||
         module.as<torch::nn::BatchNorm3d>() != nullptr;
}

struct Replaced {
  std::string name;
  ModulePtr old_layer;
  std::shared_ptr<SyncBatchNormImpl> new_layer;
};

class Conversion {
 public:
  explicit Conversion(c10::intrusive_ptr<c10d::ProcessGroup> group)
      : group_(std::move(group)) {}

  void ConvertBelow(Module& parent, const std::string& prefix) {
    // A copy: what it lists is replaced on the way.
    const auto children = parent.named_children();
    for (const auto& child : children) {
      const std::string name = absl::StrCat(prefix, child.key());
      if (Replaced* layer = Find(child.value(), name); layer != nullptr) {
        parent.replace_module(child.key(), layer->new_layer);
        ReplaceInContainer(parent, *layer);
      } else {
        ConvertBelow(*child.value(), name + ".");
      }
    }
  }

  // Something that still holds a layer would go on calling it.
  absl::StatusOr<int64_t> Count() const {
    for (const auto& [module, layer] : replaced_) {
      if (layer.old_layer.use_count() == 1) continue;
      return absl::FailedPreconditionError(absl::StrCat(
          "batch norm '", layer.name,
          "' cannot be replaced: its parent holds it by type, besides having "
          "registered it, and would go on calling it; hold it in a "
          "torch::nn::Sequential instead"));
    }
    return static_cast<int64_t>(replaced_.size());
  }

 private:
  // The layer that takes the place of `module`; null where it is no BatchNorm.
  Replaced* Find(const ModulePtr& module, const std::string& name) {
    if (auto known = replaced_.find(module.get()); known != replaced_.end())
      return &known->second;
    std::shared_ptr<SyncBatchNormImpl> layer;
    if (!(layer = Synced<torch::nn::BatchNorm1dImpl>(*module)) &&
        !(layer = Synced<torch::nn::BatchNorm2dImpl>(*module)) &&
        !(layer = Synced<torch::nn::BatchNorm3dImpl>(*module))) {
      return nullptr;
    }
    layer->train(module->is_training());
    return &(replaced_[module.get()] = {name, module, std::move(layer)});
  }

  template <typename BatchNorm>
  std::shared_ptr<SyncBatchNormImpl> Synced(const Module& module) const {
    const auto* norm = dynamic_cast<const BatchNorm*>(&module);
    if (norm == nullptr) return nullptr;
    return std::make_shared<SyncBatchNormImpl>(
        BatchNormState{norm->options, norm->weight, norm->bias,
                       norm->running_mean, norm->running_var,
                       norm->num_batches_tracked},
        group_);
  }

  // Containers call their own list, not the registered children.
  static void ReplaceInContainer(Module& parent, const Replaced& layer) {
    if (auto* sequence = dynamic_cast<torch::nn::SequentialImpl*>(&parent)) {
      for (torch::nn::AnyModule& entry : *sequence) {
        if (entry.ptr() == layer.old_layer)
          entry = torch::nn::AnyModule(layer.new_layer);
      }
    } else if (auto* list = dynamic_cast<torch::nn::ModuleListImpl*>(&parent)) {
      for (ModulePtr& entry : *list) {
        if (entry == layer.old_layer) entry = layer.new_layer;
      }
    } else if (auto* dict = dynamic_cast<torch::nn::ModuleDictImpl*>(&parent)) {
      for (auto& entry : *dict) {
        if (entry.value() == layer.old_layer) entry.value() = layer.new_layer;
      }
    }
  }

  const c10::intrusive_ptr<c10d::ProcessGroup> group_;
  std::map<const Module*, Replaced> replaced_;
};

}  // namespace

absl::StatusOr<int64_t> ConvertToSyncBatchNorm(
    Module& model, const c10::intrusive_ptr<c10d::ProcessGroup>& group) {
  if (IsBatchNorm(model)) {
    return absl::FailedPreconditionError(
        "the model is a batch norm itself, and nothing holds it in which it "
        "could be replaced; put it into a torch::nn::Sequential");
  }
  Conversion conversion(group);
  conversion.ConvertBelow(model, "");
  return conversion.Count();
}

}  // namespace rankwise
