// The memory of a training process: how the allocator treats what steps free,
// and the most that was held.
#ifndef RANKWISE_TRAINERS_OBSERVE_MEMORY_H_
#define RANKWISE_TRAINERS_OBSERVE_MEMORY_H_

#include <cstdint>
#include <istream>

#include "records/record.h"
#include "trainers/loop/worker.h"

namespace rankwise {

// Keeps freed memory for the next step instead of giving it back to the kernel.
// A step frees and asks again for activations and gradients of megabytes each;
// by default glibc unmaps them, and every step pays page faults for all of them
// (docs/performance.md has the figures). Peak memory stays; memory after the
// peak is not returned. Call it before the first tensor. Without glibc it does
// nothing.
void KeepFreedMemory();

// The peak resident set in bytes, as Linux tells it in /proc/self/status
// (VmHWM: of the program since it was started, unlike getrusage's, which also
// knows what was resident before exec). 0 where the line is missing.
int64_t PeakResidentBytes(std::istream& proc_status);

// Of this rank: resident on the host, and allocated on its accelerators, each
// one's own peak added up; 0 of those that it never used. Without what the
// driver, NCCL and CUDA's libraries take for themselves.
MemoryRecord MeasurePeakMemory(const Worker& worker);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_OBSERVE_MEMORY_H_
