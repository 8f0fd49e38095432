// A backend that matches messages by their order alone, for tests.
#ifndef RANKWISE_PARALLEL_PIPELINE_SIMULATION_STRICT_BACKEND_FOR_TEST_H_
#define RANKWISE_PARALLEL_PIPELINE_SIMULATION_STRICT_BACKEND_FOR_TEST_H_

#include "parallel/pipeline/schedule/schedule.h"

namespace rankwise {

// True if all ranks reach the end of `schedule`, which has communication, under
// the strictest rules: what two ranks issue with each other runs message by
// message in the order of issue, each once both ranks have come to it, and a
// computation waits for what it needs. Issuing does not wait. So does NCCL with
// one communicator for two ranks.
bool RunsOnStrictBackend(const Schedule& schedule);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_PIPELINE_SIMULATION_STRICT_BACKEND_FOR_TEST_H_
