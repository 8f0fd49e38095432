// Memory for the host's tensors that steps use again and again.
#ifndef RANKWISE_TRAINERS_MEMORY_CACHING_ALLOCATOR_H_
#define RANKWISE_TRAINERS_MEMORY_CACHING_ALLOCATOR_H_

#include <c10/core/Allocator.h>

#include <array>
#include <cstddef>
#include <mutex>
#include <vector>

namespace rankwise {

// PyTorch's allocator, whose freed blocks it keeps for later tensors of about
// their size, whichever thread frees them: a step like the one before calls
// malloc for no tensor and touches no new page. All blocks go back once
// PyTorch's allocator has none left. Thread-safe.
class CachingAllocator : public c10::Allocator {
 public:
  // Of the process; lives as long.
  static CachingAllocator& Get();

  // Throws as PyTorch's allocator does.
  c10::DataPtr allocate(size_t bytes) override;
  c10::DeleterFnPtr raw_deleter() const override;
  void copy_data(void* to, const void* from, size_t bytes) const override;

 private:
  CachingAllocator();

  // A block is a header, which has the place of its size in free_, and the
  // tensor's bytes.
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
