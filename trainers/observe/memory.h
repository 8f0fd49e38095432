// The memory of a training process: how the allocator treats what steps free,
// and the most that was held.
#ifndef RANKWISE_TRAINERS_OBSERVE_MEMORY_H_
#define RANKWISE_TRAINERS_OBSERVE_MEMORY_H_

#include <cstdint>
#include <istream>

#include "records/record.h"
#include "trainers/loop/worker.h"

namespace rankwise {

// Keeps freed memory for the next step instead of giving it back to the kernel:
// by default glibc unmaps activations and gradients of megabytes each, and
// every step pays page faults for all of them (figures: docs/performance.md).
// Call it before the first tensor. Without glibc it does nothing.
void KeepFreedMemory();

// The peak resident set in bytes, from /proc/self/status (VmHWM, unlike
// getrusage's figure, is of this program and not of what was before exec). 0
// where the line is missing.
int64_t PeakResidentBytes(std::istream& proc_status);

// Of this rank: resident on the host, and allocated on its accelerators, each
// one's own peak added up; 0 of those that it never used. Without what the
// driver, NCCL and CUDA's libraries take for themselves.
MemoryRecord MeasurePeakMemory(const Worker& worker);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_OBSERVE_MEMORY_H_
