// How much of its machine a process may use: cores and memory.
#ifndef RANKWISE_RECORDS_USABLE_RESOURCES_H_
#define RANKWISE_RECORDS_USABLE_RESOURCES_H_

#include <sys/types.h>

#include <cstdint>
#include <limits>
#include <string>

#include "absl/types/span.h"

namespace rankwise {

// Logical cores that this process and `others` may use together, at least 1:
// the union of their affinity masks, and no more than the CPU quota of this
// process's control groups, rounded down, since the kernel stops all threads of
// a group that has used up its quota. Processes that have ended, or are in
// another container, add nothing. Thread-safe; takes well under a millisecond.
int64_t UsableCores(absl::Span<const pid_t> others = {});

// Bytes of memory that this process may use: the machine's, or the lowest limit
// of its control groups. 0 if unknown. Swap does not count. Thread-safe.
int64_t UsableMemoryBytes();

// The lowest limits among the control groups of this process and the groups
// that contain them, version 1 and 2.
struct ControlGroupLimits {
  double cores = std::numeric_limits<double>::infinity();  // CPU seconds / s
  int64_t memory_bytes = std::numeric_limits<int64_t>::max();
};

// Reads `root`/proc/self/cgroup, `root`/proc/self/mountinfo and the limits in
// the folders mounted there. Files that cannot be read impose no limit.
ControlGroupLimits ReadControlGroupLimits(const std::string& root = "");

}  // namespace rankwise

#endif  // RANKWISE_RECORDS_USABLE_RESOURCES_H_
