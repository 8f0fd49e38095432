// The pass that adds communication to a schedule.
#ifndef RANKWISE_PARALLEL_PIPELINE_COMMUNICATION_H_
#define RANKWISE_PARALLEL_PIPELINE_COMMUNICATION_H_

#include "absl/status/statusor.h"
#include "parallel/pipeline/actions.h"

namespace rankwise {

// `compute` with a send after every action whose result another rank needs, and
// the matching receive as early in that rank's list as the order of sends
// between the two ranks allows, so that receives overlap computation. Two ranks
// issue what passes between them in the same order. Stages on the same rank
// hand over in memory and get neither. Fails as Validate does.
absl::StatusOr<Schedule> AddCommunication(const Schedule& compute);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_PIPELINE_COMMUNICATION_H_
