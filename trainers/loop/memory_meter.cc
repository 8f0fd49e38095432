#include "trainers/loop/memory_meter.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"

namespace rankwise {
namespace {

// Each storage once, unless its memory is given back between uses.
int64_t StorageBytes(const std::vector<torch::Tensor>& tensors) {
  std::set<const void*> seen;
  int64_t bytes = 0;
  for (const torch::Tensor& tensor : tensors) {
    if (!tensor.defined()) continue;
    const c10::Storage& storage = tensor.storage();
    c10::StorageImpl* memory = storage.unsafeGetStorageImpl();
    if (memory->_mutable_data_ptr_no_checks().get() == nullptr) continue;
    if (seen.insert(memory).second)
      bytes += static_cast<int64_t>(storage.nbytes());
  }
  return bytes;
}

// DDP makes its buckets anew in the second forward.
constexpr int64_t kWarmUpSteps = 2;

void Raise(int64_t& most, int64_t bytes) { most = std::max(most, bytes); }

}  // namespace

MemoryMeter::MemoryMeter(const Worker& worker, const Model& model,
                         const Optimizer& optimizer,
                         std::function<UnshardedBytes()> unsharded)
    : model_(model),
      optimizer_(optimizer),
      unsharded_(std::move(unsharded)),
      allocated_(worker) {}

void MemoryMeter::Enter(Phase phase) {
  // Between forward and backward; what they keep belongs to the activations.
  if (phase == Phase::kGather || phase == Phase::kLoss ||
      phase == Phase::kScatterGradient)
    return;
  if (phase == Phase::kForward || phase == Phase::kSchedule) {
    if (phase == Phase::kForward && steps_ >= kWarmUpSteps &&
        !std::exchange(warm_, true))
      parts_.activation_bytes = 0;
    unsharded_before_ = UnshardedNow();
    allocated_.Open();
    return;
  }
  if (phase == Phase::kBackward) TakeActivations(/*of_others=*/0);
  if (phase == Phase::kOptimizer)
    Raise(parts_.gradient_bytes, GradientBytes(/*whole=*/true));
  allocated_.Close();
}

void MemoryMeter::AfterStageForward() {
  if (!allocated_.is_open()) return;
  const bool counted = unsharded_ != nullptr && unsharded_().has_gradients;
  TakeActivations(GradientBytes(/*whole=*/!counted));
}

void MemoryMeter::AfterStep() {
  ++steps_;
  std::vector<torch::Tensor> tensors = model_.parameters();
  const std::vector<torch::Tensor>& owned = optimizer_.parameters();
  tensors.insert(tensors.end(), owned.begin(), owned.end());
  Raise(parts_.parameter_bytes, StorageBytes(tensors));
  tensors.clear();
  for (const auto& [name, tensor] : optimizer_.State())
    tensors.push_back(tensor);
  Raise(parts_.optimizer_bytes, StorageBytes(tensors));
  if (unsharded_ != nullptr) Raise(parts_.unsharded_bytes, unsharded_().peak);
}

int64_t MemoryMeter::GradientBytes(bool whole) const {
  std::vector<torch::Tensor> gradients;
  if (whole) {
    for (const torch::Tensor& parameter : model_.parameters())
      gradients.push_back(parameter.grad());
  }
  for (const torch::Tensor& parameter : optimizer_.parameters())
    gradients.push_back(parameter.grad());
  return StorageBytes(gradients);
}

int64_t MemoryMeter::UnshardedNow() const {
  return unsharded_ == nullptr ? 0 : unsharded_().now;
}

void MemoryMeter::TakeActivations(int64_t of_others) {
  Raise(parts_.activation_bytes,
        allocated_.bytes() - of_others - (UnshardedNow() - unsharded_before_));
}

std::string DescribeMemory(const MemoryRecord& record) {
  std::string text = absl::StrFormat(
      "memory of rank %d in MB, computed in brackets:", record.rank);
  const auto add = [&](const char* name, int64_t MemoryParts::*part) {
    absl::StrAppendFormat(&text, " %s %.1f (%.1f),", name,
                          1e-6 * static_cast<double>(record.measured.*part),
                          1e-6 * static_cast<double>(record.computed.*part));
  };
  add("parameters", &MemoryParts::parameter_bytes);
  add("gradients", &MemoryParts::gradient_bytes);
  add("optimizer state", &MemoryParts::optimizer_bytes);
  add("unsharded buffers", &MemoryParts::unsharded_bytes);
  add("activations", &MemoryParts::activation_bytes);
  const bool on_host = record.peak_device_bytes == 0;
  absl::StrAppendFormat(
      &text, " peak %s %.1f", on_host ? "resident" : "on the device",
      1e-6 * static_cast<double>(on_host ? record.peak_host_bytes
                                         : record.peak_device_bytes));
  return text;
}

}  // namespace rankwise
