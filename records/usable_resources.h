// The cores and memory that a process may use.
#ifndef RANKWISE_RECORDS_USABLE_RESOURCES_H_
#define RANKWISE_RECORDS_USABLE_RESOURCES_H_

#include <sys/types.h>

#include <cstdint>
#include <limits>
#include <string>

#include "absl/types/span.h"

namespace rankwise {

// Returns the number of logical cores, at least 1, that this process and
// `others` may use together: the union of their affinity masks, limited by the
// CPU quota of this process's control groups, rounded down because the kernel
// stops all threads of a group that has used up its quota. Processes that have
// ended or are in another container add nothing. Thread-safe; takes well under
// a millisecond.
int64_t UsableCores(absl::Span<const pid_t> others = {});

// Returns the bytes of memory that this process may use: the machine's memory
// or the lowest limit of its control groups, excluding swap. 0 if unknown.
// Thread-safe.
int64_t UsableMemoryBytes();

// The lowest limits among this process's control groups and their ancestors,
// version 1 and 2.
struct ControlGroupLimits {
  // CPU seconds per second
  double cores = std::numeric_limits<double>::infinity();
  int64_t memory_bytes = std::numeric_limits<int64_t>::max();
};

// Reads `root`/proc/self/cgroup, `root`/proc/self/mountinfo and the limits in
// the folders mounted there. Unreadable files impose no limit.
ControlGroupLimits ReadControlGroupLimits(const std::string& root = "");

}  // namespace rankwise

#endif  // RANKWISE_RECORDS_USABLE_RESOURCES_H_
