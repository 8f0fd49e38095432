#include "trainers/memory/measured_memory.h"

#include <stdlib.h>  // __GLIBC__

#ifdef __GLIBC__
#include <malloc.h>
#endif

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Device.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <limits>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "trainers/memory/caching_allocator.h"

namespace rankwise {
namespace {

// Returns 0 for a device never used, whose allocator would throw.
c10::CachingAllocator::Stat AllocatedBytes(c10::Device device) {
  using c10::CachingAllocator::StatType;
  c10::DeviceAllocator* const allocator =
      c10::getDeviceAllocator(device.type());
  if (!allocator->initialized()) return {};
  return allocator->getDeviceStats(device.index())
      .allocated_bytes[static_cast<size_t>(StatType::AGGREGATE)];
}

thread_local bool counts_on_this_thread = false;

// Wraps PyTorch's allocator and counts the allocations of threads that enable
// it. (The hook of PyTorch's profiler misses frees by other threads, such as
// Gloo's.)
class CountingAllocator : public c10::Allocator {
 public:
  static CountingAllocator& Get() {
    static auto* const allocator = new CountingAllocator;
    return *allocator;
  }

  c10::DataPtr allocate(size_t bytes) override {
    void* const address = inner_->raw_allocate(bytes);
    if (counts_on_this_thread && address != nullptr) {
      const std::lock_guard<std::mutex> lock(mutex_);
      counted_[address] = bytes;
      counted_bytes_ += static_cast<int64_t>(bytes);
    }
    return {address, address, &Free, c10::kCPU};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &Free; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

  int64_t counted_bytes() const { return counted_bytes_; }

 private:
  CountingAllocator() : inner_(c10::GetCPUAllocator()) {}

  static void Free(void* address) {
    CountingAllocator& self = Get();
    {
      const std::lock_guard<std::mutex> lock(self.mutex_);
      const auto counted = self.counted_.extract(address);
      if (!counted.empty())
        self.counted_bytes_ -= static_cast<int64_t>(counted.mapped());
    }
    self.inner_->raw_deallocate(address);
  }

  c10::Allocator* const inner_;
  std::mutex mutex_;
  std::unordered_map<void*, size_t> counted_;  // not yet freed
  std::atomic<int64_t> counted_bytes_ = 0;     // sum over counted_
};

// Returns the accelerators that the worker uses, without duplicates.
std::vector<c10::Device> AcceleratorsOf(const Worker& worker) {
  std::set<c10::DeviceIndex> seen;
  std::vector<c10::Device> devices = worker.devices;
  devices.push_back(worker.device);
  std::erase_if(devices, [&seen](const c10::Device& device) {
    return device.is_cpu() || !seen.insert(device.index()).second;
  });
  return devices;
}

// Counts each storage once; one whose memory is freed at present counts 0.
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

// DDP rebuilds its buckets in the second forward.
constexpr int64_t kWarmUpSteps = 2;

void Raise(int64_t& most, int64_t bytes) { most = std::max(most, bytes); }

}  // namespace

void KeepFreedMemory() {
#ifdef __GLIBC__
  constexpr int kLargestBlockOnHeap = 1 << 30;  // bytes; larger ones are mapped
  if (mallopt(M_MMAP_THRESHOLD, kLargestBlockOnHeap) == 0) {
    // The maximum before glibc 2.35.
    mallopt(M_MMAP_THRESHOLD, 32 << 20);
  }
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
#endif
#ifndef __SANITIZE_ADDRESS__  // AddressSanitizer must detect uses after free
  c10::SetCPUAllocator(&CachingAllocator::Get());
#endif
}

int64_t PeakResidentBytes(std::istream& proc_status) {
  std::string name;
  while (proc_status >> name) {
    int64_t kibibytes = 0;
    if (name == "VmHWM:" && proc_status >> kibibytes) return kibibytes * 1024;
    proc_status.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return 0;
}

MemoryRecord MeasurePeakMemory(const Worker& worker) {
  MemoryRecord record;
  record.rank = worker.env.rank;
  std::ifstream status("/proc/self/status");
  record.peak_host_bytes = PeakResidentBytes(status);
  for (const c10::Device& device : AcceleratorsOf(worker))
    record.peak_device_bytes += AllocatedBytes(device).peak;
  return record;
}

AllocationMeter::AllocationMeter(const Worker& worker)
    : accelerators_(AcceleratorsOf(worker)) {
  if (accelerators_.empty()) c10::SetCPUAllocator(&CountingAllocator::Get());
}

void AllocationMeter::Open() {
  start_bytes_ = LiveBytes();
  is_open_ = true;
  counts_on_this_thread = accelerators_.empty();
}

void AllocationMeter::Close() {
  is_open_ = false;
  counts_on_this_thread = false;
}

int64_t AllocationMeter::LiveBytes() const {
  if (accelerators_.empty()) return CountingAllocator::Get().counted_bytes();
  int64_t bytes = 0;
  for (const c10::Device& device : accelerators_)
    bytes += AllocatedBytes(device).current;
  return bytes;
}

MemoryMeter::MemoryMeter(const Worker& worker, const Model& model,
                         const Optimizer& optimizer,
                         std::function<UnshardedBytes()> unsharded)
    : model_(model),
      optimizer_(optimizer),
      unsharded_(std::move(unsharded)),
      allocated_(worker) {}

void MemoryMeter::Enter(Phase phase) {
  // Between forward and backward; tensors stored here count as activations.
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
