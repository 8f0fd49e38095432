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
  // Steps of a worker's own optimizer between two pushes of what the parameters
  // have moved by; 1: every step pushes its gradients.
  int64_t local_steps = 1;
  // With local steps: what the servers apply, and how the workers go on.
  OptimizerConfig outer;
  double attraction = 0;  // of elastic averaging, else 0
  // A worker that computes slowly, and by what its time is multiplied.
  int slow_rank = -1;
  double slow_factor = 1;
};

int ServersFromFlags();
// Of a job with `workers` workers.
ServerJobConfig ServerJobConfigFromFlags(int workers);
// Before any rank is started.
absl::Status CheckParameterServerFlags();

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_PARAMETER_SERVER_FLAGS_H_
