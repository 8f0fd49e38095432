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
  // Steps of a worker's own optimizer between two pushes of the parameters'
  // change; 1: every step pushes its gradients.
  int64_t local_steps = 1;
  // With local steps: the servers' optimizer, and the share by which workers
  // move towards the servers.
  OptimizerConfig outer;
  double attraction = 0;  // of elastic averaging, else 0
  // The worker that is slowed down, and the factor of its computation's time.
  int slow_rank = -1;
  double slow_factor = 1;
};

int ServersFromFlags();
// For a job with `workers` workers.
ServerJobConfig ServerJobConfigFromFlags(int workers);
// Before any rank is started.
absl::Status CheckParameterServerFlags(const TrainConfig&);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_PARAMETER_SERVER_FLAGS_H_
