// Who calls MPI, and when: operations that are submitted, polled until they
// end, and given up when they will not.
#ifndef RANKWISE_PARALLEL_COMM_BACKENDS_MPI_ENGINE_H_
#define RANKWISE_PARALLEL_COMM_BACKENDS_MPI_ENGINE_H_

#include <time.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/statusor.h"
#include "c10/util/intrusive_ptr.h"
#include "parallel/clock/steady_time.h"
#include "parallel/comm/backends/backends.h"
#include "parallel/comm/backends/mpi/api.h"
#include "torch/csrc/distributed/c10d/Store.hpp"
#include "torch/csrc/distributed/c10d/Work.hpp"

namespace rankwise {

class MpiEngine;

// In a group's store: why a rank will not answer any more.
inline constexpr char kMpiEndedKey[] = "ended";

// A group's connections. They are kept until the process ends.
struct MpiGroup {
  MPI_Comm comm = nullptr;
  int rank_in_job = 0;
  std::vector<int> ranks;  // of the job
  std::chrono::milliseconds timeout{0};
  c10::intrusive_ptr<c10d::Store> store;  // of the group alone

  // The rest is the engine's. Why nothing that is submitted can end.
  std::string why_broken = {};
  // Why a rank will not answer any more, and since when that is known.
  std::string notice = {};
  SteadyTime noticed = {};
  SteadyTime next_question = {};  // to the store
};

// One call of the backend, and of MPI.
class MpiWork : public c10d::Work {
 public:
  using Tensors = std::vector<at::Tensor>;
  using Milliseconds = std::chrono::milliseconds;
  // Starts one of MPI's non-blocking operations, and returns MPI's result.
  using Operation = std::function<int(MPI_Request*)>;

  struct Call {
    c10d::OpType type;
    const char* title;  // "mpi:all_reduce"
    // Kept until the call has ended, with what the functions hold.
    Tensors inputs, outputs;
    Operation start;
    // Copies to where the results belong; may be empty.
    std::function<void()> finish = {};
    // From the start, 0: from the first wait(), as messages may be received
    // long before they are due.
    Milliseconds timeout{0};
  };

  MpiWork(MpiEngine& engine, std::shared_ptr<MpiGroup> group, Call call);

  bool isCompleted() override { return ended_; }
  // Moves all calls of this process on while it waits.
  bool wait(Milliseconds timeout) override;
  int sourceRank() const override { return source_; }
  std::vector<at::Tensor> result() override { return call_.outputs; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    return future_;
  }

 private:
  friend class MpiEngine;

  // These two while MPI may be called. A failed start is an end.
  void Start(const MpiApi& mpi);
  bool HasEnded(const MpiApi& mpi);
  // Tells those who wait. Once, by whoever took the work out of the engine.
  void End(std::exception_ptr error);
  bool IsOverdue() const { return SteadyNowNs() > deadline_ns_; }

  MpiEngine& engine_;
  const std::shared_ptr<MpiGroup> group_;
  Call call_;
  const c10::intrusive_ptr<c10::ivalue::Future> future_;
  MPI_Request request_ = nullptr;
  std::exception_ptr error_;
  int source_ = -1;
  SteadyTime start_ = SteadyNow();
  std::atomic<int64_t> deadline_ns_;
  std::atomic<bool> ended_{false};
};

using MpiWorkPtr = c10::intrusive_ptr<MpiWork>;

// One per process. MPI is called by one thread at a time, which holds the
// engine's lock: whoever waits for a call, else the engine's own thread. That
// polls as long as anything is in flight, with pauses of an eighth of the time
// that it has waited, 0.25 ms at most; it sleeps when nothing is in flight.
//
// It polls without a pause for the first 20 us, and where each rank of the
// machine has a processor of its own: for the first 2 ms of a wait, and while
// the thread that made the last call waits for a future, as c10d::Reducer does.
//
// What will not end fails within about 0.3 s: after its timeout; when a rank of
// this machine has ended, which the kernel tells; when a rank of the group has
// left it or given up, which it says in the group's store. A rank of another
// machine that is killed ends the job through mpirun or srun.
class MpiEngine {
 public:
  // Initialises MPI on the first call, collectively over all ranks of the job,
  // and ends it when the process exits, unless something has failed.
  // InvalidArgument when MPI numbers the ranks otherwise than the job does;
  // NotFound without the library.
  static absl::StatusOr<MpiEngine*> Start(const BackendRequest& request);

  // Null before.
  static MpiEngine* Running();

  // A communicator of these ranks of the job, which all call it; it is kept.
  // Blocks until they have; no other MPI call is made meanwhile, but operations
  // in flight can still time out and be abandoned.
  MPI_Comm Connect(const std::vector<int>& ranks);
  // Collective over the ranks of the group. Throws what the store throws, and
  // c10::DistBackendError after request.connect_timeout; MPI cannot be used
  // after that.
  std::shared_ptr<MpiGroup> NewGroup(const BackendRequest& request);

  // Thread-safe, as what follows. Throws c10::DistBackendError when the group
  // is broken.
  void Submit(const MpiWorkPtr& work);
  // Blocks until `work` has ended.
  void Await(const MpiWork& work);
  // Fails what is in flight in the group, and whatever is submitted later.
  void Fail(MpiGroup& group, const std::string& why);

  const MpiApi& mpi() const { return mpi_; }
  // For calling MPI directly.
  std::unique_lock<std::mutex> Lock() { return std::unique_lock(calls_); }

 private:
  explicit MpiEngine(MpiApi& mpi) : mpi_(mpi) {}

  absl::Status Initialise(const BackendRequest& request);
  // Returns the processes of the job's other ranks on this machine.
  std::vector<pid_t> WatchRanksOfThisMachine(const BackendRequest& request);
  void ReadLargestTag();
  // Runs Connect() on a separate thread. Throws c10::DistBackendError after
  // `patience`, while the thread continues.
  MPI_Comm ConnectWithin(absl::Duration patience,
                         const std::vector<int>& ranks);
  void Finalise();

  void Run();
  // Until there is something to poll for.
  void Rest();
  // Calls of late have been waited for at once, as those to come probably will:
  // then it is cheaper to look every 0.2 ms than to be woken for each.
  bool IsExpectingWaits() const;
  // Polls, unless another thread does. What has ended is told outside of the
  // lock.
  void Poll();
  // The caller must hold `calls_` and `works_`.
  void StartSubmitted();
  std::vector<MpiWorkPtr> TakeEnded();

  void LookAround();
  void LookAt(MpiGroup& group, SteadyTime oldest);
  std::string DeadRank(const MpiGroup& group) const;

  MpiApi& mpi_;
  bool has_processors_ = false;  // one for each rank of this machine
  std::vector<std::pair<int, int>> watched_;  // rank of the job, its pidfd

  std::mutex calls_;  // held while MPI is called, which may block
  std::mutex works_;  // locked after `calls_`; guards the next two
  std::vector<MpiWorkPtr> in_flight_;
  // What MPI still works on although it has failed, with its memory.
  std::vector<MpiWorkPtr> abandoned_;

  std::mutex queue_;  // locked after `works_`; guards `submitted_`
  std::vector<MpiWorkPtr> submitted_;

  std::atomic<int> pending_{0};  // submitted and not ended
  std::atomic<int> waiters_{0};
  std::atomic<clockid_t> submitter_{0};  // of the thread that submitted last
  std::atomic<SteadyTime> last_wait_{SteadyTime()};  // its begin
  std::mutex sleep_;
  std::condition_variable wake_;
  std::atomic<bool> asleep_{false};
  std::atomic<bool> stopping_{false};
  SteadyTime next_look_ = SteadyNow();  // of the engine's thread
  std::thread thread_;
};

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_COMM_BACKENDS_MPI_ENGINE_H_
