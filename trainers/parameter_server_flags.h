// The flags of the trainer parameter_server.
#ifndef RANKWISE_TRAINERS_PARAMETER_SERVER_FLAGS_H_
#define RANKWISE_TRAINERS_PARAMETER_SERVER_FLAGS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "parallel/parameter_server/server.h"
#include "trainers/loop/config.h"

namespace rankwise {

struct ServerJobConfig {
  int servers = 1;
  std::string consistency;  // as typed
  ParameterServerConfig server;
  // Steps of a worker's own optimizer between pushes of the change of its
  // parameters; 1 to push gradients at every step.
  int64_t local_steps = 1;
  // With local steps: the servers' optimizer, and the factor by which workers
  // move towards the servers.
  OptimizerConfig outer;
  double attraction = 0;  // 0 without elastic averaging
  // Rank of the artificial straggler, -1 without one, and the slow-down factor.
  int slow_rank = -1;
  double slow_factor = 1;
};

int ServersFromFlags();
// Returns the configuration of a job with `workers` workers.
ServerJobConfig ServerJobConfigFromFlags(int workers);
// Checks the flags, before any rank is started.
absl::Status CheckParameterServerFlags(const TrainConfig&);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_PARAMETER_SERVER_FLAGS_H_
