// A test backend that matches messages by order only.
#ifndef RANKWISE_PARALLEL_PIPELINE_SIMULATION_STRICT_BACKEND_FOR_TEST_H_
#define RANKWISE_PARALLEL_PIPELINE_SIMULATION_STRICT_BACKEND_FOR_TEST_H_

#include "parallel/pipeline/schedule/schedule.h"

namespace rankwise {

// Returns whether all ranks complete `schedule`, which must have communication,
// under the strictest rules: two ranks' messages run one by one in issue order,
// each once both ranks have issued it, and a computation waits for the values
// it needs. Issuing does not block. NCCL behaves like this with one
// communicator for two ranks.
bool RunsOnStrictBackend(const Schedule& schedule);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_PIPELINE_SIMULATION_STRICT_BACKEND_FOR_TEST_H_
