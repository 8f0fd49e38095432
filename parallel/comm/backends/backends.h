// What moves the bytes of a group's collectives: the table of backends. A new
// backend is one entry in it and one file with its function.
#ifndef RANKWISE_PARALLEL_COMM_BACKENDS_BACKENDS_H_
#define RANKWISE_PARALLEL_COMM_BACKENDS_BACKENDS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "c10/core/Device.h"
#include "c10/util/intrusive_ptr.h"
#include "parallel/comm/backends/fake_backend.h"
#include "parallel/launch/placement.h"
#include "parallel/launch/rank_env.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace rankwise {

using BackendPtr = c10::intrusive_ptr<c10d::Backend>;

// A group of ranks, and this process in it.
struct GroupPlace {
  std::string name;        // "dp"; empty for the group of all ranks
  std::vector<int> ranks;  // of the job; rank i of the group is ranks[i]
  int rank = 0;            // of this process in the group

  int size() const { return static_cast<int>(ranks.size()); }
};

// What a group's backend is made of.
struct BackendRequest {
  RankEnv env;
  GroupPlace place;
  c10::Device device = c10::kCPU;  // the rank's
  // A part of the ranks' store for this backend of this group alone.
  c10::intrusive_ptr<c10d::Store> store;
  absl::Duration connect_timeout = absl::Minutes(1);  // of NCCL
  absl::Duration collective_timeout = absl::Minutes(5);
  // NCCL's kernels go before those of the computation that they run next to.
  bool high_priority_stream = true;
  FakeBackendConfig fake;  // the costs as the whole job has them
  // The same backend of the group of all ranks; null for that group itself.
  BackendPtr parent;
};

struct BackendKind {
  const char* name;  // as in --backend
  // The tensors that it carries.
  bool serves_cpu;
  bool serves_cuda;
  // Its collectives run in streams of the rank's own GPU. Then their futures
  // complete at launch, so that their ends are found by polling; CUDA graphs
  // can hold them; and it refuses two ranks on one GPU.
  bool on_device;
  // One process stands for all ranks: nobody is met, and no other rank answers.
  bool pretends_peers;
  // Of those that fit a rank's device, auto takes the highest; 0: never.
  int auto_preference;
  c10d::ProcessGroup::BackendType type;
  // Connected to the other ranks of the group on return; collective; blocks.
  // Unavailable when they cannot be reached, DeadlineExceeded when they do not
  // come in time. abort() fails what is in flight, here and on the peers.
  absl::StatusOr<BackendPtr> (*make)(const BackendRequest& request);
};

const std::vector<BackendKind>& Backends();

// Null for a name that is not in the table.
const BackendKind* FindBackend(absl::string_view name);

// What carries CPU tensors under a backend that does not.
const BackendKind& HostBackend();

// "auto", then the names in the table.
std::vector<std::string> BackendChoices();

// `backend`: auto, or a name in the table. InvalidArgument says why it cannot
// serve a rank on `device`, and what to use instead.
absl::StatusOr<std::string> ChooseBackend(const std::string& backend,
                                          const std::string& requested_device,
                                          c10::Device device,
                                          const RankEnv& env,
                                          const Hardware& hardware);

// Gloo over TCP. It binds to the loopback interface when all ranks of the job
// are on this machine, else to RankEnv's network_interface, else to the
// interface that leads to MASTER_ADDR; no host name is resolved.
absl::StatusOr<BackendPtr> MakeGloo(const BackendRequest& request);
// See nccl_backend.h.
absl::StatusOr<BackendPtr> MakeNccl(const BackendRequest& request);
// This rank alone, among mirror images of itself: see fake_backend.h.
absl::StatusOr<BackendPtr> MakeFake(const BackendRequest& request);

// "connecting rank 1 of 4 to the others of group dp (ranks 1, 3) by NCCL
// failed: ".
std::string ConnectingFailed(const char* name, const BackendRequest& request);

// `backend` behind a check that all ranks call the same collective with the
// same shapes and dtype. `checker` carries CPU tensors among the same ranks.
BackendPtr CheckCollectives(BackendPtr backend, BackendPtr checker);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_COMM_BACKENDS_BACKENDS_H_
