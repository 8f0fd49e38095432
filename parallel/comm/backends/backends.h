// The table of backends for a group's collectives. A new backend needs an entry
// and a file with its `make` function.
#ifndef RANKWISE_PARALLEL_COMM_BACKENDS_BACKENDS_H_
#define RANKWISE_PARALLEL_COMM_BACKENDS_BACKENDS_H_

#include <functional>
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

// A group of ranks, and the place of this process in it.
struct GroupPlace {
  std::string name;        // "dp"; "" for the group of all ranks
  std::vector<int> ranks;  // of the job; rank i of the group is ranks[i]
  int rank = 0;            // of this process in the group

  int size() const { return static_cast<int>(ranks.size()); }
  // For messages: " of group dp (ranks 0, 2)"; "" for the group of all ranks.
  // Long lists are abbreviated in the middle.
  std::string Label() const;
};

// Parameters for the backend of one group.
struct BackendRequest {
  RankEnv env;
  GroupPlace place;
  c10::Device device = c10::kCPU;  // device of the rank
  // Part of the ranks' store for this backend of this group alone.
  c10::intrusive_ptr<c10d::Store> store;
  absl::Duration connect_timeout = absl::Minutes(1);
  absl::Duration collective_timeout = absl::Minutes(5);
  FakeBackendConfig fake;  // costs for the whole job
  // The same backend of the group of all ranks; nullptr for that group itself.
  BackendPtr parent;
};

struct BackendKind {
  const char* name;  // as in --backend
  // Supported tensors.
  bool serves_cpu;
  bool serves_cuda;
  // Its collectives run in streams of the rank's own GPU: their completion is
  // polled, CUDA graphs can capture them, and ranks cannot share a GPU.
  bool on_device;
  // One process simulates all ranks.
  bool simulates_peers;
  // All ranks of the job must be on one machine.
  bool within_machine;
  // The launcher of the ranks must serve PMIx for them to connect.
  bool needs_pmix;
  // auto selects the highest one that fits a rank's device; 0 if never.
  int auto_preference;
  // Why auto selects it, as a line to print once; "" if that is obvious.
  const char* auto_reason = "";
  c10d::ProcessGroup::BackendType type;
  // Connects to the other ranks of the group; collective. Unavailable if they
  // cannot be reached, DeadlineExceeded if they do not arrive in time. The
  // backend's abort() fails calls in flight, here and on the peers.
  absl::StatusOr<BackendPtr> (*make)(const BackendRequest& request);
  // Returns what this binary or machine lacks for it, and the remedy, or "".
  // nullptr if it never lacks anything.
  std::string (*why_not)() = nullptr;
};

const std::vector<BackendKind>& Backends();

// Returns nullptr for an unknown name.
const BackendKind* FindBackend(absl::string_view name);

// The backend of CPU tensors if a rank's own backend does not support them; it
// works across hosts.
const BackendKind& HostBackend();

// Returns "auto", then the names in the table.
std::vector<std::string> BackendChoices();

// Returns the name of the backend to use. `backend`: auto, or a name in the
// table. InvalidArgument explains why it cannot serve a rank on `device`, and
// what to use instead.
absl::StatusOr<std::string> ChooseBackend(const std::string& backend,
                                          const std::string& requested_device,
                                          c10::Device device,
                                          const RankEnv& env,
                                          const Hardware& hardware);

// Creates Gloo over TCP, on the loopback interface if all ranks are on this
// machine, otherwise as in gloo_address.h. DeadlineExceeded after
// `connect_timeout`, with the attempted addresses; the attempt continues until
// the process ends.
absl::StatusOr<BackendPtr> MakeGloo(const BackendRequest& request);
// The same on one machine, but all-reduces, all-gathers, reduce-scatters and
// messages of one tensor use shared memory (shared_memory.h).
absl::StatusOr<BackendPtr> MakeSharedMemory(const BackendRequest& request);
// Creates a ProcessGroupNCCL bound to its device and connects it to all ranks
// of the group by a barrier: missing ranks, and GPUs that cannot reach each
// other, are found here and not in the first step. eagerConnectSingleDevice, as
// used by init_process_group(device_id=...), would make all messages of the
// group share one stream with its collectives (ProcessGroupNCCL.hpp,
// eagerInit_), so that a pipeline stage would wait for its predecessor before
// sending to its successor.
//
// With a `parent` the connections are split from the parent's (ncclCommSplit);
// all ranks of the parent must then create a group at the same time, each its
// own. After `collective_timeout` c10d's own watchdog ends the process with its
// own report: the fallback for Watchdog, whose timeout is shorter. NCCL's
// streams have high priority, ahead of the computation that they overlap.
//
// Unavailable, with NCCL's message, if the others cannot be reached;
// DeadlineExceeded if they have not connected within `connect_timeout` (the
// attempt continues until the process ends); Unimplemented in a build without
// CUDA (nccl_backend_none.cc).
//
// The NCCL_* and TORCH_NCCL_* environment variables are left to NCCL and c10d,
// except the one that PrepareForNccl sets: docs/gpu.md lists the important
// ones.
absl::StatusOr<BackendPtr> MakeNccl(const BackendRequest& request);
// Creates an OpenMPI backend of non-blocking operations, on the stock LibTorch;
// mpi/engine.h describes its threads and failures. MPI_Comm_create_group
// connects the group. Unavailable if MPI or the store fails, InvalidArgument if
// MPI numbers the ranks differently from the job; Unimplemented in a build
// without OpenMPI (mpi/none.cc).
absl::StatusOr<BackendPtr> MakeMpi(const BackendRequest& request);
// Returns why this process has no OpenMPI, and the remedy, or "".
std::string WhyNoMpi();
// Creates a backend of this rank alone, which all other ranks mirror: see
// fake_backend.h.
absl::StatusOr<BackendPtr> MakeFake(const BackendRequest& request);

// Returns the start of a message: "connecting rank 1 of 4 to the others of
// group dp (ranks 1, 3) by NCCL failed: ".
std::string ConnectingFailed(const char* name, const BackendRequest& request);

// For main() (PrepareRankProcess calls it), before other threads start: sets
// TORCH_NCCL_RETHROW_CUDA_ERRORS=0 unless it is set. Otherwise c10d's watchdog,
// which polls the GPU too, would throw a CUDA error out of its thread, which
// aborts the process before Watchdog has reported it. No effect without CUDA.
void PrepareForNccl();

// Returns a copy of an NCCL `work`, as c10d's watchdog holds it, that can be
// polled without keeping its tensors alive. Returns other works unchanged.
c10::intrusive_ptr<c10d::Work> WithoutTensors(
    const c10::intrusive_ptr<c10d::Work>& work);

// Calls `ask`, which may poll the GPU even while another thread captures a
// graph on it (cudaThreadExchangeStreamCaptureMode).
void AllowPollingDuringCapture(c10::Device device,
                               const std::function<void()>& ask);

// Returns this process's NCCL flight recorder as JSON; "" without CUDA. May not
// return if the GPU hangs.
std::string DumpNcclRecorder();

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_COMM_BACKENDS_BACKENDS_H_
