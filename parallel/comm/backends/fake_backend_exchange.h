// Meeting point of the fake backend's ranks: matches their calls, adds the
// costs, moves the data (fake_backend_data.cc).
#ifndef RANKWISE_PARALLEL_COMM_BACKENDS_FAKE_BACKEND_EXCHANGE_H_
#define RANKWISE_PARALLEL_COMM_BACKENDS_FAKE_BACKEND_EXCHANGE_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "c10/util/intrusive_ptr.h"
#include "parallel/comm/backends/fake_backend.h"
#include "torch/csrc/distributed/c10d/Types.hpp"
#include "torch/csrc/distributed/c10d/Work.hpp"
#include "torch/types.h"

namespace rankwise {

// One rank's part in a collective of W ranks, on n tensors.
struct FakeCall {
  enum class Kind {
    kReduce,         // inputs[n] -> outputs[n]
    kBroadcast,      // inputs[n] of the root -> outputs[n]
    kGather,         // inputs[n] -> outputs[n * W], rank fastest
    kScatter,        // inputs[W] of the root -> outputs[1]
    kReduceScatter,  // inputs[n * W], rank fastest -> outputs[n]
    kAllToAll,       // inputs[W] -> outputs[W]
    kBarrier,
  };
  std::string name;  // name in error messages, "all_reduce"
  Kind kind = Kind::kBarrier;
  std::vector<torch::Tensor> inputs = {};
  std::vector<torch::Tensor> outputs = {};
  int root = -1;  // -1 if every rank gets the result
  c10d::ReduceOp::RedOpType op = c10d::ReduceOp::SUM;
  // Each tensor is a contiguous buffer that represents its W equal parts in the
  // lists above; with one tensor per part, a world would have W * W of them.
  bool whole_inputs = false, whole_outputs = false;
};

// Fills the outputs of the ranks `to` from the inputs of all ranks: `from[r]`
// is rank r's call. In a mirrored world all are the same call. Throws
// c10::Error if shapes do not fit.
void MoveFakeData(const std::vector<const FakeCall*>& from,
                  const std::vector<int>& to);

// The clock of the fake backend: a thread that runs work immediately and
// announces its completion at the scheduled time. Thread-safe. Callbacks run
// one at a time on that thread and must not throw; they may call Schedule.
class FakeTimeline {
 public:
  using Clock = std::chrono::steady_clock;

  FakeTimeline();
  // Runs pending callbacks immediately.
  ~FakeTimeline();
  FakeTimeline(const FakeTimeline&) = delete;
  FakeTimeline& operator=(const FakeTimeline&) = delete;

  // Runs `work` as soon as possible, then `announce` not before `when`.
  void Schedule(std::function<void()> work, Clock::time_point when,
                std::function<void()> announce);

 private:
  struct State;
  static void Run(const std::shared_ptr<State>& state);

  const std::shared_ptr<State> state_;  // outlives a detached thread's loop
  std::thread thread_;
};

// Wakes all waiting threads by one system call. With a condition variable per
// rank, the kernel would traverse the list of waiting threads for each of them.
// Thread-safe.
class FakeSignal {
 public:
  void Set();
  // Blocks until Set.
  void Wait();

 private:
  std::atomic<int> set_{0};
};

// A call that completes on the timeline's thread. In virtual time its future
// completes once its rank waits for it.
class FakeWork : public c10d::Work {
 public:
  FakeWork(int rank, c10d::OpType type, std::vector<torch::Tensor> outputs);

  // Call before the first wait. `done` is set once the call has completed.
  void WakeBy(std::shared_ptr<FakeSignal> done) { done_ = std::move(done); }
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;

  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    return future_;
  }
  std::vector<torch::Tensor> result() override { return outputs_; }

  // Completes the call, with `error` unless it is null, at virtual time `end`.
  // Call once.
  void Complete(const std::exception_ptr& error,
                FakeTimeline::Clock::time_point end = {});

 private:
  const bool virtual_time_;
  FakeTimeline::Clock::time_point end_;  // in virtual time, once completed
  const std::vector<torch::Tensor> outputs_;
  std::shared_ptr<FakeSignal> done_;  // nullptr for send and recv
  const c10::intrusive_ptr<c10::ivalue::Future> future_;
};

// Thread-safe. Owned by shared_ptr.
class FakeExchange : public std::enable_shared_from_this<FakeExchange> {
 public:
  using WorkPtr = c10::intrusive_ptr<FakeWork>;

  // `alone`: the one calling rank, which all others mirror; -1 if every rank
  // calls.
  FakeExchange(int world_size, const FakeBackendConfig& config, int alone);
  // Fails calls that still wait for other ranks.
  ~FakeExchange();

  // Starts the next collective of rank `rank`, of `bytes` bytes.
  WorkPtr Collective(int rank, c10d::OpType type, FakeCall call, double bytes);
  WorkPtr Send(int rank, const torch::Tensor& tensor, int target, int tag);
  WorkPtr Recv(int rank, const torch::Tensor& tensor, int source, int tag);

  int world_size() const { return world_size_; }
  void set_timeout(std::chrono::milliseconds timeout);

 private:
  using Clock = FakeTimeline::Clock;

  // The calls of one collective, in rank order.
  struct Meeting {
    std::vector<FakeCall> calls;
    std::vector<WorkPtr> works;  // nullptr if not arrived
    const std::shared_ptr<FakeSignal> done = std::make_shared<FakeSignal>();
    int arrived = 0;
    Clock::time_point first_entry = Clock::time_point::max();
    // Entry of the latest rank, on its clock, lateness included.
    Clock::time_point last_entry{};
    std::exception_ptr failure;  // abandoned: late arrivals fail too
  };
  struct Message {
    torch::Tensor data;
    Clock::time_point arrival;
  };
  struct WaitingRecv {
    torch::Tensor target;
    WorkPtr work;
    Clock::time_point entry;  // on its rank's clock, lateness included
    Clock::time_point posted;
  };
  struct Mailbox {
    std::deque<Message> messages;
    std::deque<WaitingRecv> recvs;
  };
  using Route = std::tuple<int, int, int>;  // source, target, tag

  // These require `mutex_`.
  Clock::duration Lateness(int rank) const;
  Clock::duration WorstLateness() const;
  Clock::duration Cost(double bytes) const;
  void Arrive(Meeting& meeting, int rank, FakeCall call, WorkPtr work);
  void Start(std::shared_ptr<Meeting> meeting, Clock::duration cost);
  Clock::time_point SendTime(int source, int target, double bytes);
  void Deliver(Message message, WaitingRecv recv);
  void ArmTimeout();
  std::vector<std::pair<WorkPtr, std::exception_ptr>> TakeExpired(
      Clock::time_point now);

  void FailExpired();
  std::exception_ptr Mismatch(const Meeting& meeting) const;

  const int world_size_;
  const FakeBackendConfig config_;
  const int alone_;

  std::mutex mutex_;
  Clock::duration timeout_;
  bool timeout_armed_ = false;
  std::vector<uint64_t> next_sequence_;  // per rank
  std::map<uint64_t, std::shared_ptr<Meeting>> meetings_;
  Clock::time_point channel_free_{};
  std::map<std::pair<int, int>, Clock::time_point> link_free_;
  std::map<Route, Mailbox> mailboxes_;
  std::map<int, torch::Tensor> last_sent_;  // by tag; used if `alone`

  // The last member: it stops before the others, which its callbacks use.
  FakeTimeline timeline_;
};

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_COMM_BACKENDS_FAKE_BACKEND_EXCHANGE_H_
