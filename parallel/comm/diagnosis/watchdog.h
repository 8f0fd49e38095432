// Follows collectives whose end nobody is told of (NCCL's run on the GPU) by
// polling, and ends the process, with an explanation, when one will not end.
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

// Why what is in flight will not end well.
struct Trouble {
  std::string text;         // empty: nothing is wrong
  bool of_the_gpu = false;  // a CUDA error, which every later call meets too

  explicit operator bool() const { return !text.empty(); }
};

struct WatchdogConfig {
  int rank = 0;
  int world_size = 1;
  // From a collective's start to the moment at which it is given up.
  absl::Duration timeout = absl::Minutes(5);
  // The end of a collective may be noticed this much too late.
  absl::Duration poll_interval = absl::Milliseconds(20);
  // Between two calls of LookAround.
  absl::Duration look_interval = absl::Milliseconds(500);
  // A rank without a heartbeat for this long is gone. Generous: to take a slow
  // rank for a dead one would end a healthy job.
  absl::Duration silence = absl::Seconds(10);
  // Not the connection on which the rank waits for others. Null without peers,
  // as is `heartbeat`, which is called in GiveUp only.
  c10::intrusive_ptr<c10d::Store> store;
  std::function<Heartbeat*()> heartbeat;
  // Called for each round of polling with the function that polls, which it
  // must call. Not empty.
  std::function<void(const std::function<void()>&)> around_polling =
      [](const std::function<void()>& poll) { poll(); };
  // This process's flight recorder as JSON. May hang with the GPU.
  std::function<std::string()> dump_recorder;
  // Ends what is in flight. May hang with the GPU.
  std::function<void()> abort;
  std::function<void(const std::string& line)> print;  // empty: to stderr
  std::function<void(int exit_code)> end;              // empty: _exit
};

// Thread-safe. Follow takes about as long as a lock; the rest happens on the
// watchdog's own thread, which calls all functions of its config.
class Watchdog {
 public:
  Watchdog(WatchdogConfig config, std::shared_ptr<CollectiveLog> log);
  // Waits for a round of polling, or GiveUp, to return.
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // Works of one group that end in the order of their start: its collectives,
  // or its messages with one other rank.
  struct Lane {
    int group = 0;
    int peer = -1;

    auto operator<=>(const Lane& other) const = default;
  };

  // Polls `work` until it has ended; notes that in the log under `ticket`.
  void Follow(CollectiveLog::Ticket ticket, c10::intrusive_ptr<c10d::Work> work,
              Lane lane);

  // Blocks until nothing is in flight; false when that takes longer than
  // `patience`, or the watchdog has ended.
  bool Drain(absl::Duration patience);

  // Ends the watchdog: the caller explains what has failed. False when the
  // watchdog has given up before, and explains it itself.
  bool StandDown();

  // What the watchdog's thread does; public for tests of it.
  //
  // Why what is in flight, since `oldest` ago, will not end although no work
  // says so: a rank is dead, gone or has failed. Two requests to the store;
  // more, and up to `silence`, after 10, 20, 40, ... s in flight.
  Trouble LookAround(absl::Duration oldest);
  // Prints what DescribeFailure says or, after a CUDA error, that work on the
  // GPU has failed; then the file that has this rank's flight recorder; aborts,
  // and ends the process with exit code 1. Takes up to 2.5 s for the peers'
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
  // These give the reason to give up, if there is one.
  Trouble Round();
  Trouble Poll();
  Trouble PollLane(std::deque<Followed>& lane);
  Trouble LookForGoneRanks();
  // The lane with the oldest of what is in flight; null: nothing is.
  std::deque<Followed>* OldestLane();
  void WriteRecorder() const;
  void Print(const std::string& line) const;

  const WatchdogConfig config_;
  const std::shared_ptr<CollectiveLog> log_;
  std::mutex mutex_;  // of new_, stopping_, duty_
  std::condition_variable wake_;
  Lanes new_;
  bool stopping_ = false;
  Duty duty_ = Duty::kWatching;
  std::atomic<int> in_flight_{0};
  // Of the watchdog's thread alone.
  Lanes lanes_;
  Deadline next_look_{absl::ZeroDuration()};
  absl::Duration next_question_;
  bool store_lost_ = false;
  std::thread thread_;
};

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_COMM_DIAGNOSIS_WATCHDOG_H_
