// The most memory that this process held.
#ifndef RANKWISE_TRAINERS_PEAK_MEMORY_H_
#define RANKWISE_TRAINERS_PEAK_MEMORY_H_

#include <cstdint>
#include <istream>

#include "records/record.h"
#include "trainers/worker.h"

namespace rankwise {

// The peak resident set in bytes, as Linux tells it in /proc/self/status
// (VmHWM: of the program since it was started, unlike getrusage's, which also
// knows what was resident before exec). 0 where the line is missing.
int64_t PeakResidentBytes(std::istream& proc_status);

// Of this rank: resident on the host, and allocated on its accelerators, each
// one's own peak added up; 0 of those that it never used. Without what the
// driver, NCCL and CUDA's libraries take for themselves.
MemoryRecord MeasurePeakMemory(const Worker& worker);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_PEAK_MEMORY_H_
