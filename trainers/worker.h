// One rank as the training code sees it.
#ifndef RANKWISE_TRAINERS_WORKER_H_
#define RANKWISE_TRAINERS_WORKER_H_

#include <c10/core/Device.h>

#include <string>
#include <vector>

#include "parallel/comm/rank_env.h"

namespace rankwise {

class Communicator;

struct Worker {
  std::string trainer;   // the binary: "single", "ddp"
  std::string settings;  // the trainer's own flags that change the losses
  RankEnv env;
  c10::Device device = c10::kCPU;  // of the batches and sums
  // Of the model's parts, where one process uses several; else empty.
  std::vector<c10::Device> devices = {};
  int threads = 1;               // intra-op threads
  Communicator* comm = nullptr;  // null where there is nobody to talk to
  // Consecutive ranks that hold one copy of the model between them: the stages
  // of a pipeline. 1: every rank holds a whole one.
  int shards = 1;

  bool is_first() const { return env.rank == 0; }
  // Which part of the model this rank holds.
  int shard() const { return env.rank % shards; }
  // Copies of the model, each with its own share of the data.
  int replicas() const { return env.world_size / shards; }
  int replica() const { return env.rank / shards; }
};

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_WORKER_H_
