// A rank's membership in the job: its store, its process group and its device,
// and a plain answer to "why did this collective fail?".
#ifndef RANKWISE_PARALLEL_COMM_COMMUNICATOR_H_
#define RANKWISE_PARALLEL_COMM_COMMUNICATOR_H_

#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "c10/core/Device.h"
#include "c10/util/intrusive_ptr.h"
#include "parallel/comm/backends/fake_backend.h"
#include "parallel/comm/diagnosis/collective_log.h"
#include "parallel/comm/group.h"
#include "parallel/launch/rank_env.h"

namespace rankwise {

struct CommConfig {
  // "auto" or a name in the table of backends.h. "auto" selects nccl if the
  // build has CUDA and every local rank has its own GPU; otherwise shm on one
  // machine, mpi on several if the ranks' launcher serves PMIx, else gloo.
  std::string backend = "auto";
  // auto, cpu, cuda (rank i uses cuda:LOCAL_RANK) or cuda:N, which alone lets
  // ranks share a GPU.
  std::string device = "auto";
  // Limit for the store and all ranks to appear, and for NCCL to connect.
  absl::Duration rendezvous_timeout = absl::Seconds(60);
  // Limit of one collective. Under NCCL the watchdog then reports the failure
  // and ends the process with exit code 1: see watchdog.h.
  absl::Duration collective_timeout = absl::Minutes(5);
  // Monitors Gloo's collectives by polling, like NCCL's. For tests.
  bool poll_gloo = false;
  // Compares every collective's kind, shapes and dtype across ranks before it
  // runs, by one extra barrier and gather each.
  bool check_collectives = false;
  // File through which ranks meet; it must not exist before the job. If empty,
  // ranks meet in a TCP store at MASTER_ADDR:MASTER_PORT.
  std::string file_store;
  // Configuration of backend=fake.
  FakeBackendConfig fake;
};

enum class ReduceOp { kSum, kAverage, kMin, kMax, kProduct };

// Owns the store and the process group. The collectives below block until their
// result is in place (on a GPU: until it is visible to work submitted to the
// current stream afterwards; the host does not wait). Call them from one thread
// at a time, in the same order on every rank.
//
//   absl::StatusOr<RankEnv> env = ReadRankEnv();
//   if (!env.ok()) return env.status();
//   auto comm = Communicator::Create(*env, CommConfig{});
//   if (!comm.ok()) return comm.status();
//   at::Tensor loss = at::ones({1});
//   absl::Status status = (*comm)->AllReduce(loss, ReduceOp::kAverage);
class Communicator {
 public:
  // Meets the other ranks and connects to them; blocks for up to
  // `rendezvous_timeout`. DeadlineExceeded names the missing ranks, Unavailable
  // a MASTER_ADDR that cannot be reached, InvalidArgument a configuration that
  // cannot work or differs between ranks. backend=fake contacts no rank.
  static absl::StatusOr<std::unique_ptr<Communicator>> Create(
      const RankEnv& env, const CommConfig& config);

  // Fails collectives in flight and closes all connections. First destroy all
  // users of process_group(), on a GPU also graphs that contain its
  // collectives: NCCL waits for them; after 30 s it is leaked, with a message
  // on stderr.
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  const RankEnv& env() const;
  int rank() const;
  int world_size() const;
  // Name in the table of backends.h: "gloo".
  absl::string_view backend() const;
  // Host number of each rank of the job (HostsOf, placement.h). Without peers,
  // local_world_size consecutive ranks share a host.
  const std::vector<int>& hosts() const;
  // False for a single rank and over the fake backend.
  bool has_peers() const;
  // Whether collectives on device()'s tensors run in its streams (NCCL), so
  // that graphs can capture them.
  bool runs_on_device() const;
  c10::Device device() const;
  // Why a build with CUDA runs on the CPU although no device was requested, as
  // a line to print once; otherwise "".
  absl::string_view why_on_cpu() const;
  // Why backend=auto selected backend(), as a line to print once; otherwise "".
  absl::string_view why_backend() const;
  // Supports collectives on CPU tensors, and on CUDA tensors if device() is a
  // GPU.
  const c10::intrusive_ptr<c10d::ProcessGroup>& process_group() const;
  // All ranks of the job.
  Group world();

  // Creates a group of some ranks over the same backends; place i in it is rank
  // ranks[i]. Collective over all ranks of the job, which create the same
  // number of groups in the same order; the groups created by one call on
  // different ranks must be equal or disjoint. ExplainFailure calls the group
  // `name`. The group must not outlive the communicator. InvalidArgument if
  // `ranks` lacks this rank, repeats a rank or has a number that is not a rank;
  // Unavailable if the other ranks cannot be reached.
  absl::StatusOr<Group> NewGroup(absl::string_view name,
                                 const std::vector<int>& ranks);

  // Returns this rank's membership narrowed to `group`, for ranks whose work
  // differs from the rest of the job: collectives, rank() and world_size() are
  // the group's; env() and ExplainFailure remain the job's. `group` must come
  // from NewGroup. The result must not outlive this communicator.
  std::unique_ptr<Communicator> Within(const Group& group);
  // The communicator on which Within was called; this one if it is not
  // narrowed.
  Communicator& job() { return job_ == nullptr ? *this : *job_; }

  // Sets the place of each rank of the job, which ExplainFailure prints after
  // its number: "pp 1, tp 0".
  void SetRankPlaces(std::vector<std::string> places);

  // Reduces `tensor` (any shape, contiguous) in place over all ranks.
  absl::Status AllReduce(at::Tensor& tensor, ReduceOp op = ReduceOp::kSum);
  // Overwrites `tensor` with that of rank `root`.
  absl::Status Broadcast(at::Tensor& tensor, int root);
  // Returns every rank's `tensor`, in rank order; shapes must agree.
  absl::StatusOr<std::vector<at::Tensor>> AllGather(const at::Tensor& tensor);
  // Blocks until every rank has called it.
  absl::Status Barrier();

  // Converts an exception thrown by communication in any group, here or inside
  // DDP's backward, into a Status that names the collective, its group,
  // sequence number and shapes, and the ranks that are dead or did not arrive.
  // `attempted` opens the message: "backward of step 17". Closes the
  // connections, so that ranks waiting for this one fail at once and can
  // explain it too, then queries the other ranks through the store for up to 3
  // s. The communicator cannot be used afterwards.
  absl::Status ExplainFailure(absl::string_view attempted,
                              const std::exception& error);

  // Steady-clock time of the last collective's start, in ns; 0 before the
  // first.
  int64_t last_collective_start_ns() const;

  // Record this rank's communication in all groups from StartTraffic to
  // StopTraffic. TakeTraffic stops recording and returns the events. No other
  // thread may start a collective during these calls.
  void StartTraffic();
  void StopTraffic();
  std::vector<CommEvent> TakeTraffic();

 private:
  struct Parts;
  explicit Communicator(std::shared_ptr<Parts> parts);
  std::shared_ptr<Parts> parts_;
  Communicator* job_ = nullptr;  // nullptr unless narrowed
  Group narrowed_to_;            // valid with job_
};

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_COMM_COMMUNICATOR_H_
