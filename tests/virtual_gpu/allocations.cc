// Follows LibTorch's caching allocator: a tensor's memory is zero when it is
// allocated, in the order of the stream that it is allocated on. A tensor that
// no kernel computes is therefore zero instead of holding an earlier tensor's
// values, and reusing memory that another stream may still use is reported at
// the moment of the allocation.
#include "tests/virtual_gpu/allocations.h"

#include <dlfcn.h>

#include <cstring>

#include "c10/cuda/CUDACachingAllocator.h"
#include "tests/virtual_gpu/devices.h"
#include "tests/virtual_gpu/streams.h"

namespace rankwise::virtual_gpu {
namespace {

using c10::CachingDeviceAllocator::TraceEntry;
using c10::cuda::CUDACachingAllocator::CUDAAllocator;

void Follow(const TraceEntry& entry) {
  if (entry.action_ != TraceEntry::ALLOC) return;
  void* const start = reinterpret_cast<void*>(entry.addr_);
  const size_t bytes = entry.size_;
  Operation zero;
  zero.name = "the allocation of a tensor";
  zero.accesses = {{start, bytes, true}};
  zero.run = [=] { std::memset(Contents(start), 0, bytes); };
  const int before = CurrentDevice();
  SetCurrentDevice(entry.device_);
  (void)Enqueue(static_cast<cudaStream_t>(entry.stream_), std::move(zero));
  SetCurrentDevice(before);
}

bool Attach() {
  // By symbol name: this library is also loaded into programs without LibTorch.
  const auto* const allocator = static_cast<std::atomic<CUDAAllocator*>*>(
      dlsym(RTLD_DEFAULT, "_ZN3c104cuda20CUDACachingAllocator9allocatorE"));
  if (allocator == nullptr || allocator->load() == nullptr ||
      !allocator->load()->initialized())
    return false;
  allocator->load()->attachAllocatorTraceTracker(Follow);
  return true;
}

}  // namespace

void FollowAllocations() {
  static const bool kAttached = Attach();
  (void)kAttached;
}

}  // namespace rankwise::virtual_gpu
