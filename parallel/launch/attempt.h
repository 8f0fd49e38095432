// One start of all ranks of a job by rankwise's launcher, and the environment
// that describes it to the ranks.
#ifndef RANKWISE_PARALLEL_LAUNCH_ATTEMPT_H_
#define RANKWISE_PARALLEL_LAUNCH_ATTEMPT_H_

#include <string>
#include <vector>

#include "absl/time/time.h"

namespace rankwise {

struct Attempt {
  int restart = 0;  // 0 for the first start
  // Cause and time of the previous attempt's failure, and its start.
  std::string cause = {};
  absl::Time failed = {};
  absl::Time started = {};
};

// Returns the environment variables that ReadRankEnv() reads on `rank`, as
// "NAME=value", except MASTER_ADDR and MASTER_PORT.
std::vector<std::string> EnvironmentOf(const Attempt& attempt, int rank,
                                       int ranks, int max_restarts);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_LAUNCH_ATTEMPT_H_
