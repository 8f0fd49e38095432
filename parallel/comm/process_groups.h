// The process groups of one rank: how each is made of backends, and how all of
// them end.
#ifndef RANKWISE_PARALLEL_COMM_PROCESS_GROUPS_H_
#define RANKWISE_PARALLEL_COMM_PROCESS_GROUPS_H_

#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "c10/core/Device.h"
#include "c10/util/intrusive_ptr.h"
#include "parallel/comm/backends/backends.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/diagnosis/collective_log.h"
#include "parallel/comm/diagnosis/watchdog.h"
#include "parallel/launch/rank_env.h"

namespace rankwise {

struct ProcessGroupsConfig {
  RankEnv env;
  CommConfig comm;
  const BackendKind* backend = nullptr;  // what `comm.backend` has come to
  c10::Device device = c10::kCPU;
  c10::intrusive_ptr<c10d::Store> store;
  std::shared_ptr<CollectiveLog> log;  // of the collectives of all groups
  // Follows the collectives of backends on the device; with `comm.poll_gloo`
  // all others, too.
  std::shared_ptr<Watchdog> watchdog;
};

// Keeps every group alive until it is destroyed itself. Not thread-safe.
class ProcessGroups {
 public:
  using GroupPtr = c10::intrusive_ptr<c10d::ProcessGroup>;

  explicit ProcessGroups(ProcessGroupsConfig config)
      : config_(std::move(config)) {}

  // Connects a new group; the first must be that of all ranks. Collective: all
  // ranks of the job make their groups in the same order. Unavailable when the
  // others cannot be reached, DeadlineExceeded when they do not come.
  absl::StatusOr<GroupPtr> Add(const GroupPlace& place);

  // Fails what is in flight in any group, and closes the connections, so that
  // waiting peers fail too. The groups cannot be used afterwards.
  void Abort();
  // Ends the groups on the device in good order: waits for what is in flight,
  // then disconnects. After 30 s it says so on stderr, and leaks them.
  void ShutDown();
  // Leaves the groups to the end of the process: a destructor would wait for
  // collectives that never end.
  void Leak();

 private:
  // `number`: the group's in the log.
  absl::StatusOr<BackendPtr> Make(const BackendKind& kind,
                                  const GroupPlace& place, int number);
  absl::StatusOr<BackendPtr> Checked(BackendRequest request, BackendPtr inner);

  const ProcessGroupsConfig config_;
  std::vector<GroupPtr> groups_;
  // The backends that the groups are made of, those of the group of all ranks
  // first. Kept for Abort: the check does not forward abort().
  std::vector<std::pair<const BackendKind*, BackendPtr>> carriers_;
};

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_COMM_PROCESS_GROUPS_H_
