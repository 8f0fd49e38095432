// The schedule of an evaluation: forward only.
#ifndef RANKWISE_PARALLEL_PIPELINE_FORWARD_SCHEDULE_H_
#define RANKWISE_PARALLEL_PIPELINE_FORWARD_SCHEDULE_H_

#include <vector>

#include "parallel/pipeline/actions.h"

namespace rankwise {

// F of all micro-batches through all stages, with sends and receives. A stage
// computes as soon as it can, and a rank with several stages takes turns among
// them, so that micro-batches follow each other for any placement. All ranks'
// lists agree with one order of all actions and messages: even where every send
// waits for its receive, nothing deadlocks.
Schedule MakeForwardSchedule(std::vector<int> rank_of_stage, int num_ranks,
                             int num_micro_batches);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_PIPELINE_FORWARD_SCHEDULE_H_
