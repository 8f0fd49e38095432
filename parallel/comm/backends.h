// Makes the backends that move the bytes; NCCL is in nccl_backend.h.
#ifndef RANKWISE_PARALLEL_COMM_BACKENDS_H_
#define RANKWISE_PARALLEL_COMM_BACKENDS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "c10/util/intrusive_ptr.h"
#include "parallel/comm/rank_env.h"

namespace c10d {
class Backend;
class Store;
}  // namespace c10d

namespace rankwise {

// A group of ranks, and this process in it.
struct GroupPlace {
  std::string name;        // "dp"; empty for the group of all ranks
  std::vector<int> ranks;  // of the job; rank i of the group is ranks[i]
  int rank = 0;            // of this process in the group

  int size() const { return static_cast<int>(ranks.size()); }
};

// Gloo over TCP, connected to all peers of the group on return. It binds to the
// loopback interface when all ranks of the job are on this machine, else to
// RankEnv's network_interface, else to the interface that leads to MASTER_ADDR;
// no host name is resolved. Every group needs a part of the store for itself.
// abort() closes all connections: what is in flight, here and on the peers,
// fails at once. All-reduces of CPU tensors of at most `direct_bytes` go past
// Gloo (direct_all_reduce.h); 0: none.
absl::StatusOr<c10::intrusive_ptr<c10d::Backend>> MakeGloo(
    const RankEnv& env, const GroupPlace& place,
    const c10::intrusive_ptr<c10d::Store>& store, absl::Duration timeout,
    int64_t direct_bytes = 0);

// "connecting rank 1 of 4 to the others of group dp (ranks 1, 3) by NCCL
// failed: ".
std::string ConnectingFailed(const char* name, const RankEnv& env,
                             const GroupPlace& place);

// `backend` behind a check that all ranks call the same collective with the
// same shapes and dtype. `checker` is a Gloo group of the same ranks.
c10::intrusive_ptr<c10d::Backend> CheckCollectives(
    c10::intrusive_ptr<c10d::Backend> backend,
    c10::intrusive_ptr<c10d::Backend> checker);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_COMM_BACKENDS_H_
