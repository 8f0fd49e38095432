// The process groups of one rank: how each is made of backends, and how all of
// them end.
#ifndef RANKWISE_PARALLEL_COMM_PROCESS_GROUPS_H_
#define RANKWISE_PARALLEL_COMM_PROCESS_GROUPS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "c10/core/Device.h"
#include "c10/util/intrusive_ptr.h"
#include "parallel/comm/backends.h"
#include "parallel/comm/collective_log.h"
#include "parallel/comm/collective_watch.h"
#include "parallel/comm/fake_backend.h"
#include "parallel/comm/rank_env.h"

namespace c10d {
class Backend;
class ProcessGroup;
class Store;
}  // namespace c10d

namespace rankwise {

struct ProcessGroupsConfig {
  RankEnv env;
  std::string backend;  // "gloo", "nccl" or "fake"
  c10::Device device = c10::kCPU;
  absl::Duration connect_timeout = absl::Minutes(1);  // of NCCL
  absl::Duration collective_timeout;
  bool check_collectives = false;
  int64_t direct_all_reduce_bytes = 0;
  bool nccl_high_priority_stream = true;
  FakeBackendConfig fake;
  // Follows NCCL's collectives; Gloo's too where `watch_gloo`.
  std::shared_ptr<CollectiveWatch> watch;
  bool watch_gloo = false;
};

// Keeps every group alive until it is destroyed itself. Not thread-safe.
class ProcessGroups {
 public:
  using GroupPtr = c10::intrusive_ptr<c10d::ProcessGroup>;

  // Logs the collectives of all groups in `log`.
  ProcessGroups(ProcessGroupsConfig config,
                c10::intrusive_ptr<c10d::Store> store,
                std::shared_ptr<CollectiveLog> log);

  // Connects a new group; the first must be that of all ranks. Collective: all
  // ranks of the job make their groups in the same order, each the one that it
  // is in. Unavailable when the others cannot be reached, DeadlineExceeded when
  // they do not come.
  absl::StatusOr<GroupPtr> Add(const GroupPlace& place);

  // Fails what is in flight in any group, and closes the connections, so that
  // peers that wait for this rank fail too. The groups are of no use then.
  void Abort();
  // Ends NCCL's groups in good order: waits for what is in flight, then
  // disconnects, the last group first. When that takes longer than 30 s it says
  // so on stderr, and leaks them. The groups are of no use then.
  void ShutDown();
  // Leaves the groups' memory and threads to the end of the process: a
  // destructor would wait for collectives that never end.
  void Leak();

 private:
  struct Building;
  absl::Status AddGloo(Building& building);
  absl::Status AddNccl(Building& building);
  void AddFake(Building& building);
  absl::Duration CarrierTimeout(bool watched) const;
  absl::StatusOr<c10::intrusive_ptr<c10d::Backend>> Checked(
      const Building& building, c10::intrusive_ptr<c10d::Backend> inner);

  const ProcessGroupsConfig config_;
  const c10::intrusive_ptr<c10d::Store> store_;
  const std::shared_ptr<CollectiveLog> log_;
  std::vector<GroupPtr> groups_;
  // What carries them: the check does not pass abort() on.
  std::vector<c10::intrusive_ptr<c10d::Backend>> carriers_;
  c10::intrusive_ptr<c10d::Backend> first_nccl_;  // of all ranks
};

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_COMM_PROCESS_GROUPS_H_
