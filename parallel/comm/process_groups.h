// The process groups of one rank: construction from backends, abort and
// shutdown.
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
  const BackendKind* backend = nullptr;  // selected by `comm.backend`
  c10::Device device = c10::kCPU;
  c10::intrusive_ptr<c10d::Store> store;
  std::shared_ptr<CollectiveLog> log;  // of the collectives of all groups
  // Monitors collectives of on-device backends; with `comm.poll_gloo` those of
  // all backends.
  std::shared_ptr<Watchdog> watchdog;
};

// Keeps every group alive until its own destruction. Not thread-safe.
class ProcessGroups {
 public:
  using GroupPtr = c10::intrusive_ptr<c10d::ProcessGroup>;

  explicit ProcessGroups(ProcessGroupsConfig config)
      : config_(std::move(config)) {}

  // Connects a new group; the first must contain all ranks. Collective: all
  // ranks of the job create their groups in the same order. Unavailable if the
  // others cannot be reached, DeadlineExceeded if they do not arrive.
  absl::StatusOr<GroupPtr> Add(const GroupPlace& place);

  // Fails collectives in flight in all groups and closes the connections, so
  // that waiting peers fail too. The groups cannot be used afterwards.
  void Abort();
  // Shuts down the on-device groups: waits for collectives in flight, then
  // disconnects. After 30 s it logs to stderr and leaks them.
  void ShutDown();
  // Leaks the groups until the process ends: their destructors would wait for
  // collectives that never complete.
  void Leak();

 private:
  // `number`: the number of the group in the log.
  absl::StatusOr<BackendPtr> Make(const BackendKind& kind,
                                  const GroupPlace& place, int number);
  absl::StatusOr<BackendPtr> Checked(BackendRequest request, BackendPtr inner);

  const ProcessGroupsConfig config_;
  std::vector<GroupPtr> groups_;
  // Backends of all groups, those of the group of all ranks first. Kept for
  // Abort: ProcessGroupWrapper does not forward abort().
  std::vector<std::pair<const BackendKind*, BackendPtr>> carriers_;
};

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_COMM_PROCESS_GROUPS_H_
