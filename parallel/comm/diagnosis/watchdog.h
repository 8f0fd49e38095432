// Polls collectives that do not report completion (NCCL's run on the GPU), and
// ends the process, with an explanation, if one cannot complete.
#ifndef RANKWISE_PARALLEL_COMM_DIAGNOSIS_WATCHDOG_H_
#define RANKWISE_PARALLEL_COMM_DIAGNOSIS_WATCHDOG_H_

#include <atomic>
#include <compare>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "absl/time/time.h"
#include "c10/util/intrusive_ptr.h"
#include "parallel/clock/steady_time.h"
#include "parallel/comm/diagnosis/collective_log.h"
#include "parallel/comm/diagnosis/peers.h"

namespace c10d {
class Store;
class Work;
}  // namespace c10d

namespace rankwise {

// Why calls in flight cannot complete.
struct Trouble {
  std::string text;         // "" if nothing is wrong
  bool of_the_gpu = false;  // a CUDA error, which also fails all later calls

  explicit operator bool() const { return !text.empty(); }
};

struct WatchdogConfig {
  int rank = 0;
  int world_size = 1;
  // Maximum time from a collective's start to its completion.
  absl::Duration timeout = absl::Minutes(5);
  // Maximum delay until the completion of a collective is noticed.
  absl::Duration poll_interval = absl::Milliseconds(20);
  // Interval between calls of LookAround.
  absl::Duration look_interval = absl::Milliseconds(500);
  // A rank without a heartbeat for this long counts as gone. Generous, since
  // mistaking a slow rank for a dead one would end a healthy job.
  absl::Duration silence = absl::Seconds(10);
  // Not the connection on which the rank waits for others. nullptr without
  // peers, like `heartbeat`, which only GiveUp calls.
  c10::intrusive_ptr<c10d::Store> store;
  std::function<Heartbeat*()> heartbeat;
  // Called for each round of polling; must call the polling function that it
  // receives. Must not be empty.
  std::function<void(const std::function<void()>&)> around_polling =
      [](const std::function<void()>& poll) { poll(); };
  // Returns this process's flight recorder as JSON. May hang if the GPU does.
  std::function<std::string()> dump_recorder;
  // Fails calls in flight. May hang if the GPU does.
  std::function<void()> abort;
  std::function<void(const std::string& line)> print;  // stderr if empty
  std::function<void(int exit_code)> end;              // _exit if empty
};

// Thread-safe. Follow takes about as long as a lock; all else runs on the
// watchdog's own thread, which calls all functions of its config.
class Watchdog {
 public:
  Watchdog(WatchdogConfig config, std::shared_ptr<CollectiveLog> log);
  // Waits for a round of polling, or GiveUp, to return.
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // Works of one group that complete in the order of their start: its
  // collectives, or its messages with one other rank.
  struct Lane {
    int group = 0;
    int peer = -1;

    auto operator<=>(const Lane& other) const = default;
  };

  // Polls `work` until it completes, and records that in the log under
  // `ticket`.
  void Follow(CollectiveLog::Ticket ticket, c10::intrusive_ptr<c10d::Work> work,
              Lane lane);

  // Blocks until nothing is in flight. Returns false if that takes longer than
  // `patience`, or if the watchdog has ended.
  bool Drain(absl::Duration patience);

  // Ends the watchdog, so that the caller reports failures. Returns false if
  // the watchdog has given up and reports one itself.
  bool StandDown();

  // Work of the watchdog's thread; public for tests.
  //
  // Returns why calls in flight, the oldest of which started `oldest` ago,
  // cannot complete although no work has failed: a rank is dead, gone or has
  // failed. Makes two requests to the store; more, for up to `silence`, after
  // 10, 20, 40, ... s in flight.
  Trouble LookAround(absl::Duration oldest);
  // Prints DescribeFailure's message or, after a CUDA error, that work on the
  // GPU has failed; then the path of this rank's flight recorder; aborts, and
  // ends the process with exit code 1. Takes up to 2.5 s for the peers'
  // answers, 1 s for the recorder and 5 s for the abort.
  void GiveUp(const Trouble& why);

 private:
  struct Followed {
    CollectiveLog::Ticket ticket = 0;
    c10::intrusive_ptr<c10d::Work> work;
    SteadyTime start;
  };
  using Lanes = std::map<Lane, std::deque<Followed>>;
  enum class Duty { kWatching, kStoodDown, kGivenUp };

  void Run();
  // These return the reason to give up, if there is one.
  Trouble Round();
  Trouble Poll();
  Trouble PollLane(std::deque<Followed>& lane);
  Trouble LookForGoneRanks();
  // Returns the lane with the oldest work in flight; nullptr if there is none.
  std::deque<Followed>* OldestLane();
  void WriteRecorder() const;
  void Print(const std::string& line) const;

  const WatchdogConfig config_;
  const std::shared_ptr<CollectiveLog> log_;
  std::mutex mutex_;  // guards new_, stopping_, duty_
  std::condition_variable wake_;
  Lanes new_;
  bool stopping_ = false;
  Duty duty_ = Duty::kWatching;
  std::atomic<int> in_flight_{0};
  // Used by the watchdog's thread alone.
  Lanes lanes_;
  Deadline next_look_{absl::ZeroDuration()};
  absl::Duration next_question_;
  bool store_lost_ = false;
  std::thread thread_;
};

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_COMM_DIAGNOSIS_WATCHDOG_H_
