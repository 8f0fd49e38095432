// One start of all ranks of a job by our launcher, and the environment that
// describes it to them.
#ifndef RANKWISE_PARALLEL_LAUNCH_ATTEMPT_H_
#define RANKWISE_PARALLEL_LAUNCH_ATTEMPT_H_

#include <string>
#include <vector>

#include "absl/time/time.h"

namespace rankwise {

struct Attempt {
  int restart = 0;  // 0: the first start
  // The previous attempt: why and when it failed, and when it was started.
  std::string cause = {};
  absl::Time failed = {};
  absl::Time started = {};
};

// The environment variables that ReadRankEnv() reads on `rank`, as
// "NAME=value", except MASTER_ADDR and MASTER_PORT.
std::vector<std::string> EnvironmentOf(const Attempt& attempt, int rank,
                                       int ranks, int max_restarts);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_LAUNCH_ATTEMPT_H_
