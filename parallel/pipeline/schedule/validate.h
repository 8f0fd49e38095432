// A dry run of a schedule: what would go wrong, and how many activations it
// keeps.
#ifndef RANKWISE_PARALLEL_PIPELINE_SCHEDULE_VALIDATE_H_
#define RANKWISE_PARALLEL_PIPELINE_SCHEDULE_VALIDATE_H_

#include <vector>

#include "absl/status/statusor.h"
#include "parallel/pipeline/schedule/actions.h"

namespace rankwise {

struct ScheduleFacts {
  // Per rank: the most micro-batches whose forward is done and whose weight
  // gradient is not, summed over the rank's stages, in units of one stage's
  // activations; divide by the stages per rank for whole micro-batches.
  std::vector<int> peak_activations;
};

// InvalidArgument that names the rank, its position in the list and the action:
// an action that is missing, doubled, of an unknown stage or micro-batch, on
// another rank than the stage's other actions, before what it needs on its own
// rank; or, for a deadlock, who waits for what in a cycle. Accepts schedules
// with and without communication.
absl::StatusOr<ScheduleFacts> Validate(const Schedule& schedule);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_PIPELINE_SCHEDULE_VALIDATE_H_
