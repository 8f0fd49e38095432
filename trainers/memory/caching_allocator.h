// An allocator that reuses the memory of the host's tensors across steps.
#ifndef RANKWISE_TRAINERS_MEMORY_CACHING_ALLOCATOR_H_
#define RANKWISE_TRAINERS_MEMORY_CACHING_ALLOCATOR_H_

#include <c10/core/Allocator.h>

#include <array>
#include <cstddef>
#include <mutex>
#include <vector>

namespace rankwise {

// Wraps PyTorch's allocator and keeps freed blocks, whichever thread frees
// them, for later tensors of about the same size: a step like the previous one
// calls malloc for no tensor and touches no new page. If PyTorch's allocator
// runs out of memory, returns all blocks to it and tries again. Thread-safe.
class CachingAllocator : public c10::Allocator {
 public:
  // Returns the allocator of the process, which is never destroyed.
  static CachingAllocator& Get();

  // Throws as PyTorch's allocator does.
  c10::DataPtr allocate(size_t bytes) override;
  c10::DeleterFnPtr raw_deleter() const override;
  void copy_data(void* to, const void* from, size_t bytes) const override;

 private:
  CachingAllocator();

  // A block is a Header, which holds the index of its size class in free_,
  // followed by the tensor's bytes.
  void* Take(size_t size_class);
  void* Make(size_t size_class);
  void GiveBackAll();
  static void Free(void* address);

  c10::Allocator* const inner_;
  std::mutex mutex_;
  static constexpr size_t kSizeClasses = 8 * 64;
  std::array<std::vector<void*>, kSizeClasses> free_;
};

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_MEMORY_CACHING_ALLOCATOR_H_
