// What ranks know of each other through the store: heartbeats, departures and
// deaths.
#ifndef RANKWISE_PARALLEL_COMM_DIAGNOSIS_PEERS_H_
#define RANKWISE_PARALLEL_COMM_DIAGNOSIS_PEERS_H_

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "c10/util/intrusive_ptr.h"
#include "parallel/comm/diagnosis/collective_log.h"

namespace c10d {
class Store;
}  // namespace c10d

namespace rankwise {

// How far a rank has come in one of its groups.
struct GroupProgress {
  uint64_t sequence = 0;  // of the last collective it started there
  std::string doing;      // that collective or message; empty: none yet
};

// What a rank publishes about itself once a second.
struct Pulse {
  // What a rank is to another. It publishes the first three itself.
  enum class Life {
    kAlive,    // of a peer: its heart beat after the question was asked
    kFailed,   // a collective has failed there, whatever became of it then
    kLeft,     // destroyed its communicator
    kDead,     // the launcher says so
    kStopped,  // the launcher says so
    kSilent,   // no heartbeat
    kUnknown,  // another's death answered the question before its heart beat
  };
  Life life = Life::kAlive;
  uint64_t beat = 0;  // counts publications
  // Of kFailed: 1 for the first rank to fail, and what failed there.
  int64_t failure_order = 0;
  std::string failure;
  std::string doing;                    // the last it started in any group
  std::vector<GroupProgress> progress;  // by CollectiveLog's number of a group
};
// The texts must not contain line breaks.
std::string FormatPulse(const Pulse& pulse);
absl::StatusOr<Pulse> ParsePulse(const std::string& text);

// Publishes this rank's pulse from a thread of its own until destroyed. A store
// that is gone is not an error here: publishing just ends.
class Heartbeat {
 public:
  Heartbeat(c10::intrusive_ptr<c10d::Store> store, int rank,
            std::shared_ptr<const CollectiveLog> log);
  ~Heartbeat();
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

  // Publishes at once that `failure` (a collective's description) has failed
  // here. Returns the place of this rank among those that failed, from 1; 0
  // when the store is gone.
  int64_t MarkFailed(const std::string& failure);
  // Stops the thread and publishes, unless failed, that this rank has left.
  void Leave();

 private:
  void Run();
  void Publish();  // needs mutex_

  const c10::intrusive_ptr<c10d::Store> store_;
  const int rank_;
  const std::shared_ptr<const CollectiveLog> log_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  bool store_lost_ = false;
  Pulse pulse_;
  std::thread thread_;
};

// Notes in the ranks' store that `rank` has died, and how ("killed by signal
// 9"). For the launcher, which knows at once.
void ReportDeath(c10d::Store& store, int rank, const std::string& how);

// Notes in the ranks' store whether `rank` is stopped (SIGSTOP). For the
// launcher, which knows at once.
void ReportStop(c10d::Store& store, int rank, bool is_stopped);

// A rank that another holds to be the cause of its failure, and why: "rank 1
// has left the job; ...".
struct Blame {
  int rank = 0;
  std::string what;
};
// Notes the first of `blames` in the ranks' store as why `rank` has failed.
// Nothing when there is none, or the store is gone.
void ReportBlame(c10d::Store& store, int rank,
                 const std::vector<Blame>& blames);
// What ReportBlame noted for `rank`. Throws what the store throws.
std::optional<Blame> BlameOf(c10d::Store& store, int rank);

// Whether any rank has marked itself failed, or has been reported dead. One
// request; both throw what the store throws.
bool AnyFailed(c10d::Store& store);
bool AnyDead(c10d::Store& store);

// A rank as seen by another.
struct PeerStatus {
  using Life = Pulse::Life;
  int rank = 0;
  Life life = Life::kSilent;
  Pulse pulse;        // the last that it published
  std::string death;  // of kDead: how
};

// Asks the store about every rank but `self`. Returns as soon as one is known
// to be dead or stopped, or all have shown a sign of life, and otherwise after
// `patience`, which should be above two seconds. Unavailable when the store
// does not answer.
absl::StatusOr<std::vector<PeerStatus>> AskPeers(c10d::Store& store, int self,
                                                 int world_size,
                                                 absl::Duration patience);

// Counts this rank out, and blocks until all ranks have counted themselves out
// or `patience` is over.
void AwaitDepartures(c10d::Store& store, int world_size,
                     absl::Duration patience);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_COMM_DIAGNOSIS_PEERS_H_
