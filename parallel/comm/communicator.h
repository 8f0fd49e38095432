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
  // auto, or a name in the table of backends.h. auto: nccl when the build has
  // CUDA and every local rank has a GPU of its own; on CPUs shm on one machine,
  // mpi on several if whoever started the ranks serves PMIx; else gloo.
  std::string backend = "auto";
  // auto, cpu, cuda (rank i takes cuda:LOCAL_RANK) or cuda:N, the only way for
  // ranks to share a GPU.
  std::string device = "auto";
  // For the store and all ranks to be there; also for NCCL to connect.
  absl::Duration rendezvous_timeout = absl::Seconds(60);
  // How long a collective may take before it fails. Under NCCL the process then
  // explains it and ends with exit code 1, by itself: see watchdog.h.
  absl::Duration collective_timeout = absl::Minutes(5);
  // Follow Gloo's collectives by polling, as NCCL's. For tests of that.
  bool poll_gloo = false;
  // Compare every collective's kind, shapes and dtype across ranks before it
  // runs: one extra barrier and gather each.
  bool check_collectives = false;
  // File through which ranks meet, which must not exist before the job; empty:
  // a TCP store at MASTER_ADDR:MASTER_PORT.
  std::string file_store;
  // What backend=fake pretends.
  FakeBackendConfig fake;
};

enum class ReduceOp { kSum, kAverage, kMin, kMax, kProduct };

// Owns the store and the process group. The collectives below block until their
// result is in place (on a GPU: what is given to the current stream afterwards
// finds it there; the host does not wait), and are called by one thread at a
// time, in the same order on every rank.
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
  // cannot work or that the ranks do not share. Under backend=fake nobody is
  // met.
  static absl::StatusOr<std::unique_ptr<Communicator>> Create(
      const RankEnv& env, const CommConfig& config);

  // Fails what is still in flight, and closes all connections. Destroy whatever
  // uses process_group() first, on a GPU also graphs that hold its collectives:
  // NCCL waits for them, and is left as it is, with a line on stderr, after 30
  // s.
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  const RankEnv& env() const;
  int rank() const;
  int world_size() const;
  // Its name in the table of backends.h: "gloo".
  absl::string_view backend() const;
  // The host of each rank of the job (HostsOf, placement.h). Without peers: as
  // many ranks on each as RankEnv says.
  const std::vector<int>& hosts() const;
  // Whether other ranks answer: neither alone, nor over the fake backend.
  bool has_peers() const;
  // Whether collectives of device()'s tensors run in its streams (NCCL), so
  // that graphs can hold them.
  bool runs_on_device() const;
  c10::Device device() const;
  // Why a build with CUDA computes on the CPU although the device was left
  // open, in a line to print once; else "".
  absl::string_view why_on_cpu() const;
  // Why backend=auto has taken backend(), likewise.
  absl::string_view why_backend() const;
  // Carries collectives of CPU tensors, and of CUDA tensors when device() is a
  // GPU.
  const c10::intrusive_ptr<c10d::ProcessGroup>& process_group() const;
  // All ranks of the job.
  Group world();

  // A group of some ranks, over the same backends; place i in it is rank
  // ranks[i]. Collective over all ranks of the job, which make as many groups
  // in the same order; at each call the groups they name are the same or
  // disjoint. ExplainFailure calls it by `name`. Use it no longer than the
  // communicator. InvalidArgument without this rank in `ranks`, or with one
  // that is none or comes twice; Unavailable when the others cannot be reached.
  absl::StatusOr<Group> NewGroup(absl::string_view name,
                                 const std::vector<int>& ranks);

  // This rank's membership, narrowed to `group`, for ranks that do other work
  // than the rest of the job: collectives, rank() and world_size() are the
  // group's; env() and ExplainFailure remain the job's. `group` is one of
  // NewGroup's. The result must not outlive this communicator.
  std::unique_ptr<Communicator> Within(const Group& group);
  // The communicator that Within was called on; this one, if it is not
  // narrowed.
  Communicator& job() { return job_ == nullptr ? *this : *job_; }

  // How ExplainFailure is to call each rank of the job, in addition to its
  // number: "pp 1, tp 0".
  void NameRanks(std::vector<std::string> places);

  // Reduces `tensor` (any shape, contiguous) in place over all ranks.
  absl::Status AllReduce(at::Tensor& tensor, ReduceOp op = ReduceOp::kSum);
  // Overwrites `tensor` with rank `root`'s.
  absl::Status Broadcast(at::Tensor& tensor, int root);
  // Every rank's `tensor`, in order of rank; shapes must agree.
  absl::StatusOr<std::vector<at::Tensor>> AllGather(const at::Tensor& tensor);
  // Returns when every rank has called it.
  absl::Status Barrier();

  // Turns an exception thrown out of communication in any group, here or inside
  // DDP's backward, into a Status that names the collective, its group,
  // sequence number and shapes, and the ranks that are dead or did not arrive.
  // `attempted` opens the message: "backward of step 17". Asks the other ranks
  // through the store, which takes up to 3 s, and closes the connections first,
  // so that ranks that wait for this one fail at once and can explain it too:
  // the communicator cannot be used afterwards.
  absl::Status ExplainFailure(absl::string_view attempted,
                              const std::exception& error);

  // Steady-clock time of the last collective's start; 0 before the first.
  int64_t last_collective_start_ns() const;

  // What this rank communicates in any group from StartTraffic to StopTraffic;
  // TakeTraffic stops and hands it over. Called while no other thread starts
  // anything.
  void StartTraffic();
  void StopTraffic();
  std::vector<CommEvent> TakeTraffic();

 private:
  struct Parts;
  explicit Communicator(std::shared_ptr<Parts> parts);
  std::shared_ptr<Parts> parts_;
  Communicator* job_ = nullptr;  // null: not narrowed
  Group narrowed_to_;            // with job_
};

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_COMM_COMMUNICATOR_H_
