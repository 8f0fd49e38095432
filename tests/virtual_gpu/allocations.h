#ifndef RANKWISE_TESTS_VIRTUAL_GPU_ALLOCATIONS_H_
#define RANKWISE_TESTS_VIRTUAL_GPU_ALLOCATIONS_H_

namespace rankwise::virtual_gpu {

// Must be called when the caching allocator allocates memory, on its own
// thread.
void FollowAllocations();

}  // namespace rankwise::virtual_gpu

#endif  // RANKWISE_TESTS_VIRTUAL_GPU_ALLOCATIONS_H_
