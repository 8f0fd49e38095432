// One rank as the training code sees it.
#ifndef RANKWISE_TRAINERS_WORKER_H_
#define RANKWISE_TRAINERS_WORKER_H_

#include <c10/core/Device.h>

#include <string>

#include "parallel/comm/rank_env.h"

namespace rankwise {

class Communicator;

struct Worker {
  std::string trainer;    // the binary: "single", "ddp"
  std::string workspace;  // folder of the source tree that `bazel run` was
                          // started in, or empty
  std::string settings;   // the trainer's own flags that change the losses
  RankEnv env;
  c10::Device device = c10::kCPU;
  int threads = 1;               // intra-op threads
  Communicator* comm = nullptr;  // null where there is nobody to talk to

  bool is_first() const { return env.rank == 0; }
};

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_WORKER_H_
