// What carries a group's collectives: the table of backends. A new one is an
// entry in it and a file with its function.
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

// A group of ranks, and this process in it.
struct GroupPlace {
  std::string name;        // "dp"; empty for the group of all ranks
  std::vector<int> ranks;  // of the job; rank i of the group is ranks[i]
  int rank = 0;            // of this process in the group

  int size() const { return static_cast<int>(ranks.size()); }
  // For messages: " of group dp (ranks 0, 2)"; "" for the group of all ranks.
  // The middle of a long list is left out.
  std::string Label() const;
};

// What a group's backend is made of.
struct BackendRequest {
  RankEnv env;
  GroupPlace place;
  c10::Device device = c10::kCPU;  // the rank's
  // A part of the ranks' store for this backend of this group alone.
  c10::intrusive_ptr<c10d::Store> store;
  absl::Duration connect_timeout = absl::Minutes(1);
  absl::Duration collective_timeout = absl::Minutes(5);
  FakeBackendConfig fake;  // the costs as the whole job has them
  // The same backend of the group of all ranks; null for that group itself.
  BackendPtr parent;
};

struct BackendKind {
  const char* name;  // as in --backend
  // The tensors that it carries.
  bool serves_cpu;
  bool serves_cuda;
  // Its collectives run in streams of the rank's own GPU: their ends are found
  // by polling, CUDA graphs can hold them, and two ranks cannot share a GPU.
  bool on_device;
  // One process stands for all ranks.
  bool pretends_peers;
  // All ranks of the job must be on one machine.
  bool within_machine;
  // Whoever starts the ranks must help them to connect, by PMIx.
  bool needs_pmix;
  // Of those that fit a rank's device, auto takes the highest; 0: never.
  int auto_preference;
  // Why auto takes it, in a line to print once; "" where that is plain.
  const char* auto_reason = "";
  c10d::ProcessGroup::BackendType type;
  // Connects to the other ranks of the group; collective. Unavailable when they
  // cannot be reached, DeadlineExceeded when they do not come in time. abort()
  // fails what is in flight, here and on the peers.
  absl::StatusOr<BackendPtr> (*make)(const BackendRequest& request);
  // What this binary or machine lacks for it, and what to do; "" nothing. Null:
  // never anything.
  std::string (*why_not)() = nullptr;
};

const std::vector<BackendKind>& Backends();

// Null for a name that is not in the table.
const BackendKind* FindBackend(absl::string_view name);

// What carries CPU tensors under a backend that does not, wherever ranks are.
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

// Gloo over TCP, on the loopback interface when all ranks are on this machine,
// else as gloo_address.h says. DeadlineExceeded after `connect_timeout`, with
// the addresses that were tried; the attempt goes on until the process ends.
absl::StatusOr<BackendPtr> MakeGloo(const BackendRequest& request);
// The same on one machine, but all_reduces, all_gathers and reduce_scatters of
// one tensor go through memory that the ranks share (shared_memory.h).
absl::StatusOr<BackendPtr> MakeSharedMemory(const BackendRequest& request);
// A ProcessGroupNCCL bound to its device and connected to all ranks of the
// group on return, by a barrier: ranks that do not come, and GPUs that cannot
// reach each other, are found here and not in the first step. Not by
// eagerConnectSingleDevice, as init_process_group(device_id=...) does: it makes
// all messages of the group share one stream with its collectives
// (ProcessGroupNCCL.hpp, eagerInit_), and a pipeline stage would wait for its
// predecessor with what it has for its successor.
//
// With a `parent` the connections are split from its own (ncclCommSplit); then
// all ranks of the parent make a group at the same time, each its own.
// After `collective_timeout` c10d's own watchdog ends the process with its own
// report: the fallback for Watchdog, whose timeout is shorter. NCCL's streams
// have high priority, ahead of the computation that they overlap.
//
// Unavailable, with what NCCL says, when the others cannot be reached,
// DeadlineExceeded when they have not connected within `connect_timeout` (the
// attempt goes on until the process ends); Unimplemented in a build without
// CUDA (nccl_backend_none.cc).
//
// The environment's NCCL_* and TORCH_NCCL_* variables are NCCL's and c10d's
// own, and but for PrepareForNccl's left alone: docs/gpu.md lists those that
// matter.
absl::StatusOr<BackendPtr> MakeNccl(const BackendRequest& request);
// OpenMPI, by operations that do not block, on the stock LibTorch: see
// mpi/engine.h for who calls it and how it fails. A group's ranks make its
// communicator by MPI_Comm_create_group. Unavailable when MPI or the store
// fails, InvalidArgument when MPI numbers the ranks otherwise than the job
// does; Unimplemented in a build without OpenMPI (mpi/none.cc).
absl::StatusOr<BackendPtr> MakeMpi(const BackendRequest& request);
// Why this process has no OpenMPI, and what to do; "" when it has.
std::string WhyNoMpi();
// This rank alone, among mirror images of itself: see fake_backend.h.
absl::StatusOr<BackendPtr> MakeFake(const BackendRequest& request);

// "connecting rank 1 of 4 to the others of group dp (ranks 1, 3) by NCCL
// failed: ".
std::string ConnectingFailed(const char* name, const BackendRequest& request);

// For main() (PrepareRankProcess calls it), before any other thread: sets
// TORCH_NCCL_RETHROW_CUDA_ERRORS=0 unless the environment has it. Otherwise
// c10d's watchdog, which polls the GPU too, would throw a CUDA error out of its
// thread, which is SIGABRT, before Watchdog has told what happened. Nothing
// without CUDA.
void PrepareForNccl();

// A copy of an NCCL `work`, as c10d's watchdog holds it, that can be polled for
// its end without keeping its tensors alive. Others are given back.
c10::intrusive_ptr<c10d::Work> WithoutTensors(
    const c10::intrusive_ptr<c10d::Work>& work);

// Calls `ask`, in which the GPU may be polled although another thread is
// capturing a graph on it (cudaThreadExchangeStreamCaptureMode).
void BesideCaptures(c10::Device device, const std::function<void()>& ask);

// NCCL's flight recorder of this process as JSON; "" without CUDA. May not
// return when the GPU hangs.
std::string DumpNcclRecorder();

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_COMM_BACKENDS_BACKENDS_H_
