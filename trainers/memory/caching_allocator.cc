#include "trainers/memory/caching_allocator.h"

#include <c10/core/CPUAllocator.h>
#include <c10/core/Device.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <bit>

namespace rankwise {
namespace {

// Precedes a tensor's bytes; as large as the alignment that PyTorch guarantees.
struct alignas(64) Header {
  size_t size_class;
};

// Eight size classes per power of two, so that a block is at most an eighth
// larger than its tensor; the smallest has kSmallest bytes.
constexpr size_t kSmallest = 64, kSizesPerDoubling = 8;

// Returns the smallest class whose blocks hold `bytes`.
size_t SizeClassOf(size_t bytes) {
  const size_t units = (std::max(bytes, kSmallest) - 1) / (kSmallest / 8);
  const size_t doublings = std::max<size_t>(std::bit_width(units), 4) - 4;
  return kSizesPerDoubling * doublings + (units >> doublings) - 7;
}

size_t BytesOf(size_t size_class) {
  const size_t doublings = size_class / kSizesPerDoubling;
  const size_t eighths = kSizesPerDoubling + size_class % kSizesPerDoubling;
  return (eighths << doublings) * (kSmallest / kSizesPerDoubling);
}

}  // namespace

CachingAllocator& CachingAllocator::Get() {
  static auto* const allocator = new CachingAllocator;
  return *allocator;
}

CachingAllocator::CachingAllocator() : inner_(c10::GetDefaultCPUAllocator()) {}

c10::DataPtr CachingAllocator::allocate(size_t bytes) {
  if (bytes == 0) return {nullptr, nullptr, &Free, c10::kCPU};
  const size_t size_class = SizeClassOf(bytes);
  void* block = Take(size_class);
  if (block == nullptr) block = Make(size_class);
  void* const address = static_cast<Header*>(block) + 1;
  return {address, address, &Free, c10::kCPU};
}

c10::DeleterFnPtr CachingAllocator::raw_deleter() const { return &Free; }

void CachingAllocator::copy_data(void* to, const void* from,
                                 size_t bytes) const {
  default_copy_data(to, from, bytes);
}

void* CachingAllocator::Take(size_t size_class) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<void*>& blocks = free_[size_class];
  if (blocks.empty()) return nullptr;
  void* const block = blocks.back();
  blocks.pop_back();
  return block;
}

void* CachingAllocator::Make(size_t size_class) {
  const size_t bytes = sizeof(Header) + BytesOf(size_class);
  void* block = nullptr;
  try {
    block = inner_->raw_allocate(bytes);
  } catch (const c10::Error&) {  // no memory left
    GiveBackAll();
    block = inner_->raw_allocate(bytes);
  }
  static_cast<Header*>(block)->size_class = size_class;
  return block;
}

void CachingAllocator::GiveBackAll() {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (std::vector<void*>& blocks : free_) {
    for (void* block : blocks) inner_->raw_deallocate(block);
    blocks.clear();
  }
}

void CachingAllocator::Free(void* address) {
  if (address == nullptr) return;
  Header* const block = static_cast<Header*>(address) - 1;
  CachingAllocator& self = Get();
  const std::lock_guard<std::mutex> lock(self.mutex_);
  self.free_[block->size_class].push_back(block);
}

}  // namespace rankwise
