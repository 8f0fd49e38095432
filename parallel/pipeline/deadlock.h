// The part of Validate that finds ranks that wait for each other in a circle.
#ifndef RANKWISE_PARALLEL_PIPELINE_DEADLOCK_H_
#define RANKWISE_PARALLEL_PIPELINE_DEADLOCK_H_

#include "absl/status/status.h"
#include "parallel/pipeline/actions.h"

namespace rankwise {

// InvalidArgument that names the circle, one rank a line. The schedule must be
// complete, with every rank's own order right.
absl::Status CheckNoDeadlock(const Schedule& schedule);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_PIPELINE_DEADLOCK_H_
