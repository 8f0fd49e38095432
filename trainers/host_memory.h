// How the C library's allocator treats the memory that a training step frees.
#ifndef RANKWISE_TRAINERS_HOST_MEMORY_H_
#define RANKWISE_TRAINERS_HOST_MEMORY_H_

namespace rankwise {

// Keeps freed memory for the next step instead of giving it back to the kernel.
// A step frees and asks again for activations and gradients of megabytes each;
// by default glibc unmaps them, and every step pays page faults for all of them
// (docs/performance.md has the figures). Peak memory stays; memory after the
// peak is not returned. Call it before the first tensor. Without glibc it does
// nothing.
void KeepFreedMemory();

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_HOST_MEMORY_H_
