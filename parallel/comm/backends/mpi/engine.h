// Submits MPI operations, polls them until they complete, and fails those that
// cannot.
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

// Key in a group's store: why a rank no longer answers.
inline constexpr char kMpiEndedKey[] = "ended";

// A group's connections, kept until the process ends.
struct MpiGroup {
  MPI_Comm comm = nullptr;
  int rank_in_job = 0;
  std::vector<int> ranks;  // of the job
  std::chrono::milliseconds timeout{0};
  c10::intrusive_ptr<c10d::Store> store;  // of the group alone

  // Owned by the engine. `why_broken`: the reason the group failed; "" while it
  // is usable.
  std::string why_broken = {};
  // Why a rank no longer answers, and since when that is known.
  std::string notice = {};
  SteadyTime noticed = {};
  SteadyTime next_question = {};  // earliest next query of the store
};

// One call of the backend, and its MPI operation.
class MpiWork : public c10d::Work {
 public:
  using Tensors = std::vector<at::Tensor>;
  using Milliseconds = std::chrono::milliseconds;
  // Starts a non-blocking MPI operation and returns MPI's error code.
  using Operation = std::function<int(MPI_Request*)>;

  struct Call {
    c10d::OpType type;
    const char* title;  // "mpi:all_reduce"
    // Kept until the call has completed, like the captures of the functions.
    Tensors inputs, outputs;
    Operation start;
    // Copies results to their destination; may be empty.
    std::function<void()> finish = {};
    // From the start. If 0, the group's timeout applies from the first wait(),
    // since receives may be posted long before they are due.
    Milliseconds timeout{0};
  };

  MpiWork(MpiEngine& engine, std::shared_ptr<MpiGroup> group, Call call);

  bool isCompleted() override { return ended_; }
  // Progresses all calls of this process while it waits.
  bool wait(Milliseconds timeout) override;
  int sourceRank() const override { return source_; }
  std::vector<at::Tensor> result() override { return call_.outputs; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    return future_;
  }

 private:
  friend class MpiEngine;

  // Both require the engine's lock. A failed start counts as an end.
  void Start(const MpiApi& mpi);
  bool HasEnded(const MpiApi& mpi);
  // Wakes waiters. Called once, by the thread that removed the work from the
  // engine.
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

// One per process. One thread at a time calls MPI, holding the engine's lock: a
// thread that waits for a call, otherwise the engine's own. The engine's thread
// polls while anything is in flight, with pauses of an eighth of the time
// waited so far, at most 0.25 ms, and otherwise sleeps.
//
// Polling begins without pauses: for 20 us in the engine's thread and 150 us in
// a wait. If each rank of the machine has its own processor, for 2 ms in a
// wait, and in the engine's thread while the thread that made the last call
// waits for a future, as c10d::Reducer does.
//
// An operation that cannot complete fails within about 0.3 s: after its
// timeout; after the end of a rank on this machine, as reported by the kernel;
// after a rank of the group has left or aborted it, as published in the group's
// store. A killed rank on another machine ends the job through mpirun or srun.
class MpiEngine {
 public:
  // Initialises MPI on the first call, collectively over all ranks of the job,
  // and finalises it when the process exits, unless a call has failed.
  // InvalidArgument if MPI numbers the ranks differently from the job; NotFound
  // without the library.
  static absl::StatusOr<MpiEngine*> Start(const BackendRequest& request);

  // nullptr before Start has succeeded.
  static MpiEngine* Running();

  // Creates a communicator of these ranks of the job, which all call this; it
  // is never freed. Blocks until they have; no other MPI call is made
  // meanwhile, but operations in flight can still time out and be abandoned.
  MPI_Comm Connect(const std::vector<int>& ranks);
  // Collective over the ranks of the group. Throws the store's exceptions, and
  // c10::DistBackendError after request.connect_timeout; MPI cannot be used
  // after that.
  std::shared_ptr<MpiGroup> NewGroup(const BackendRequest& request);

  // Thread-safe, like the functions below. Throws c10::DistBackendError if the
  // group is broken.
  void Submit(const MpiWorkPtr& work);
  // Blocks until `work` has ended.
  void Await(const MpiWork& work);
  // Fails the group's operations in flight and all later ones.
  void Fail(MpiGroup& group, const std::string& why);

  const MpiApi& mpi() const { return mpi_; }
  // For direct calls of MPI.
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
  // Blocks until there is something to poll.
  void Rest();
  // Whether recent calls were waited for at once, as the next ones probably
  // will be: polling every 0.2 ms is then cheaper than a wake-up for each.
  bool IsExpectingWaits() const;
  // Polls, unless another thread does. Completes works after releasing the
  // lock.
  void Poll();
  // The caller must hold `calls_` and `works_`.
  void StartSubmitted();
  std::vector<MpiWorkPtr> TakeEnded();

  void LookAround();
  void LookAt(MpiGroup& group, SteadyTime oldest);
  std::string DeadRank(const MpiGroup& group) const;

  MpiApi& mpi_;
  bool has_processors_ = false;               // one per rank of this machine
  std::vector<std::pair<int, int>> watched_;  // rank of the job, its pidfd

  std::mutex calls_;  // held while MPI is called, which may block
  std::mutex works_;  // locked after `calls_`; guards the next two
  std::vector<MpiWorkPtr> in_flight_;
  // Failed works whose MPI operations still use their memory.
  std::vector<MpiWorkPtr> abandoned_;

  std::mutex queue_;  // locked after `works_`; guards `submitted_`
  std::vector<MpiWorkPtr> submitted_;

  std::atomic<int> pending_{0};  // submitted and not completed
  std::atomic<int> waiters_{0};
  // CPU clock of the last submitting thread.
  std::atomic<clockid_t> submitter_{0};
  std::atomic<SteadyTime> last_wait_{SteadyTime()};  // its start
  std::mutex sleep_;
  std::condition_variable wake_;
  std::atomic<bool> asleep_{false};
  std::atomic<bool> stopping_{false};
  SteadyTime next_look_ = SteadyNow();  // used by the engine's thread
  std::thread thread_;
};

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_COMM_BACKENDS_MPI_ENGINE_H_
