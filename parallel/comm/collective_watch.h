// Follows collectives whose end nobody is told of (NCCL's), by asking their
// works now and then, and notices those that will not end.
#ifndef RANKWISE_PARALLEL_COMM_COLLECTIVE_WATCH_H_
#define RANKWISE_PARALLEL_COMM_COLLECTIVE_WATCH_H_

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "c10/util/intrusive_ptr.h"
#include "parallel/comm/collective_log.h"
#include "parallel/comm/steady_time.h"

namespace c10d {
class Work;
}  // namespace c10d

namespace rankwise {

// Why what is in flight will not end well.
struct Trouble {
  std::string text;         // empty: nothing is wrong
  bool of_the_gpu = false;  // a CUDA error, which every later call meets too

  explicit operator bool() const { return !text.empty(); }
};

struct CollectiveWatchConfig {
  // From a collective's start to the moment at which it is given up.
  absl::Duration timeout = absl::Minutes(5);
  // Between two rounds of questions: by so much an end may be learnt too late.
  absl::Duration interval = absl::Milliseconds(20);
  // Between two calls of `look_around`.
  absl::Duration look_interval = absl::Milliseconds(500);

  // All are called on the watch's thread. Each round of questions is asked
  // inside of `around_questions`; empty: as it is.
  std::function<void(const std::function<void()>&)> around_questions;
  // Why what is in flight will not end although no work says so (a rank is
  // gone), or "". `oldest`: since when something is in flight; zero: nothing
  // is.
  std::function<std::string(absl::Duration oldest)> look_around;
  // Called once, with nothing asked or followed after it: "Timed out after 5m",
  // the exception of a work, or look_around's answer. The log has the one that
  // failed.
  std::function<void(const Trouble& why)> give_up;
};

// Thread-safe. Follow takes about as long as a lock; everything else happens on
// a thread of the watch's own.
class CollectiveWatch {
 public:
  CollectiveWatch(CollectiveWatchConfig config,
                  std::shared_ptr<CollectiveLog> log);
  // Waits for a round, or give_up, to return.
  ~CollectiveWatch();
  CollectiveWatch(const CollectiveWatch&) = delete;
  CollectiveWatch& operator=(const CollectiveWatch&) = delete;

  // Works of one group that end in the order in which they were started: its
  // collectives, or its messages with one other rank.
  struct Lane {
    int group = 0;
    int peer = -1;

    bool operator<(const Lane& other) const {
      return std::pair(group, peer) < std::pair(other.group, other.peer);
    }
  };

  // Asks `work` about its end from now on; notes it in the log under `ticket`.
  void Follow(CollectiveLog::Ticket ticket, c10::intrusive_ptr<c10d::Work> work,
              Lane lane);

  // Blocks until nothing is in flight; false when that takes longer than
  // `patience`, or the watching has ended.
  bool Drain(absl::Duration patience);

  // Ends the watching: somebody else explains what has failed. False when the
  // watch has given up before, and explains it itself.
  bool StandDown();

 private:
  struct Followed {
    CollectiveLog::Ticket ticket = 0;
    c10::intrusive_ptr<c10d::Work> work;
    Lane lane;
    SteadyTime start;
  };
  enum class Duty { kWatching, kStoodDown, kGivenUp };

  void Run();
  void TakeIn();
  // All but GiveUp give the reason to give up, if there is one.
  Trouble Ask();
  Trouble AskLane(std::deque<Followed>& lane);
  Trouble Overdue();
  Trouble LookAround();
  // When the oldest of what is in flight was started; null: nothing is.
  const SteadyTime* OldestStart() const;
  void GiveUp(const Trouble& why);

  const CollectiveWatchConfig config_;
  const std::shared_ptr<CollectiveLog> log_;
  std::mutex mutex_;  // of new_, stopping_, duty_
  std::condition_variable wake_;
  std::vector<Followed> new_;
  bool stopping_ = false;
  Duty duty_ = Duty::kWatching;
  std::atomic<int> in_flight_{0};
  // Of the watch's thread alone.
  std::map<Lane, std::deque<Followed>> lanes_;
  Deadline next_look_{absl::ZeroDuration()};
  std::thread thread_;
};

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_COMM_COLLECTIVE_WATCH_H_
