// Where the ranks of the fake backend meet: matches their calls, charges the
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

// One rank's part in a collective of W ranks: n tensors at a time.
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
  std::string name;  // as in an error message, "all_reduce"
  Kind kind = Kind::kBarrier;
  std::vector<torch::Tensor> inputs = {};
  std::vector<torch::Tensor> outputs = {};
  int root = -1;  // -1: every rank gets the result
  c10d::ReduceOp::RedOpType op = c10d::ReduceOp::SUM;
  // Each tensor is a contiguous buffer that stands for its W equal parts in the
  // lists above; a tensor for each part would make W * W of them in a world.
  bool whole_inputs = false, whole_outputs = false;
};

// Fills the outputs of the ranks `to` from the inputs of all ranks: `from[r]`
// is rank r's call. In a mirrored world all of them are one and the same call.
// Throws c10::Error when shapes do not fit.
void MoveFakeData(const std::vector<const FakeCall*>& from,
                  const std::vector<int>& to);

// The clock of the fake backend: a thread that does work at once and announces
// it when it is supposed to be done. Thread-safe. Callbacks run one after
// another on that thread and must not throw; they may call Schedule.
class FakeTimeline {
 public:
  using Clock = std::chrono::steady_clock;

  FakeTimeline();
  // Runs what is pending at once, without waiting for its time.
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

// Wakes all threads that wait for it by one system call. With a condition
// variable per rank, the kernel would walk the list of waiting threads once for
// each of them. Thread-safe.
class FakeSignal {
 public:
  void Set();
  // Returns once it is set.
  void Wait();

 private:
  std::atomic<int> set_{0};
};

// A call that completes on the timeline's thread; in virtual time its future
// completes when its rank waits for it.
class FakeWork : public c10d::Work {
 public:
  FakeWork(int rank, c10d::OpType type, std::vector<torch::Tensor> outputs);

  // Before the first wait: `done` is set once the call has been completed.
  void WakeBy(std::shared_ptr<FakeSignal> done) { done_ = std::move(done); }
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;

  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    return future_;
  }
  std::vector<torch::Tensor> result() override { return outputs_; }

  // Completes the call, with an error unless null; `end` is when, in virtual
  // time. Once only.
  void Complete(const std::exception_ptr& error,
                FakeTimeline::Clock::time_point end = {});

 private:
  const bool virtual_time_;
  FakeTimeline::Clock::time_point end_;  // in virtual time, once completed
  const std::vector<torch::Tensor> outputs_;
  std::shared_ptr<FakeSignal> done_;  // null: waits for this call alone
  const c10::intrusive_ptr<c10::ivalue::Future> future_;
};

// Thread-safe. Held by shared_ptr.
class FakeExchange : public std::enable_shared_from_this<FakeExchange> {
 public:
  using WorkPtr = c10::intrusive_ptr<FakeWork>;

  // `alone`: the one rank whose calls arrive, all others being its mirror
  // images; -1 when every rank calls.
  FakeExchange(int world_size, const FakeBackendConfig& config, int alone);
  // Fails the calls that still wait for other ranks.
  ~FakeExchange();

  // Rank `rank`'s next collective, `bytes` large.
  WorkPtr Collective(int rank, c10d::OpType type, FakeCall call, double bytes);
  WorkPtr Send(int rank, const torch::Tensor& tensor, int target, int tag);
  WorkPtr Recv(int rank, const torch::Tensor& tensor, int source, int tag);

  int world_size() const { return world_size_; }
  void set_timeout(std::chrono::milliseconds timeout);

 private:
  using Clock = FakeTimeline::Clock;

  // The calls that make up one collective, in order of rank.
  struct Meeting {
    std::vector<FakeCall> calls;
    std::vector<WorkPtr> works;  // null: not arrived
    const std::shared_ptr<FakeSignal> done = std::make_shared<FakeSignal>();
    int arrived = 0;
    Clock::time_point first_entry = Clock::time_point::max();
    // Of the latest rank, on its clock, lateness included.
    Clock::time_point last_entry{};
    std::exception_ptr failure;  // given up: late arrivals fail too
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

  // These need `mutex_`.
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
  std::map<int, torch::Tensor> last_sent_;  // alone: by tag

  FakeTimeline timeline_;  // last: stops before what its callbacks use
};

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_COMM_BACKENDS_FAKE_BACKEND_EXCHANGE_H_
