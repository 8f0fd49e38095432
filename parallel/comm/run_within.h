// Waits no longer than one is willing to for what may hang.
#ifndef RANKWISE_PARALLEL_COMM_RUN_WITHIN_H_
#define RANKWISE_PARALLEL_COMM_RUN_WITHIN_H_

#include <functional>

#include "absl/time/time.h"

namespace rankwise {

// Calls `action` on a thread of its own, and waits for it. False when that
// takes longer than `patience`: the thread goes on, and what `action` uses must
// outlive it. Exceptions end it.
bool RunWithin(absl::Duration patience, std::function<void()> action);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_COMM_RUN_WITHIN_H_
