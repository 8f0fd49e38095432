// What a Communicator is made of, and how it comes to be. Of communicator.cc
// alone.
#ifndef RANKWISE_PARALLEL_COMM_COMMUNICATOR_PARTS_H_
#define RANKWISE_PARALLEL_COMM_COMMUNICATOR_PARTS_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "c10/core/Device.h"
#include "c10/util/intrusive_ptr.h"
#include "parallel/comm/collective_log.h"
#include "parallel/comm/collective_watch.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/peers.h"
#include "parallel/comm/placement.h"
#include "parallel/comm/process_groups.h"
#include "parallel/comm/rank_env.h"
#include "parallel/comm/rendezvous.h"

namespace rankwise {

struct Communicator::Parts {
  // Groups that are left to the end of the process keep the watch's thread,
  // which must not call back here then.
  ~Parts() { StandDown(); }

  RankEnv env;
  CommConfig config;
  std::string backend;
  c10::Device device = c10::kCPU;
  std::string requested_device;
  Hardware hardware;
  std::string why_on_cpu;
  StoreConnection connection;
  std::shared_ptr<CollectiveLog> log = std::make_shared<CollectiveLog>();
  std::unique_ptr<Heartbeat> heartbeat;  // none when there are no peers
  std::shared_ptr<ProcessGroups> groups;
  c10::intrusive_ptr<c10d::ProcessGroup> process_group;  // of all ranks
  std::shared_ptr<CollectiveWatch> watch;                // none: ends are told
  bool failed = false;

  // Ends of collectives are learnt by asking, as of NCCL's.
  bool IsAsked() const {
    return backend == "nccl" || (backend == "gloo" && config.ask_gloo);
  }
  absl::Status Place();
  absl::Status Meet();
  absl::Status CheckGpus();
  absl::Status Agree();
  absl::Status Connect();
  void Watch();
  // Gives what is in flight some time to end, and ends the watching.
  void EndWatch();
  // Who calls this explains what has failed. Does not return where the watch
  // does that: it ends the process.
  void StandDown();
  void Abort();
};

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_COMM_COMMUNICATOR_PARTS_H_
