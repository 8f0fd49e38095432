#ifndef RANKWISE_TESTS_VIRTUAL_GPU_ALLOCATIONS_H_
#define RANKWISE_TESTS_VIRTUAL_GPU_ALLOCATIONS_H_

namespace rankwise::virtual_gpu {

// To be called when the caching allocator takes memory, from its own thread.
void FollowAllocations();

}  // namespace rankwise::virtual_gpu

#endif  // RANKWISE_TESTS_VIRTUAL_GPU_ALLOCATIONS_H_
