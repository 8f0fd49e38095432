// What ranks know of each other through the store, and why, in view of that, a
// collective failed (failure_report.cc).
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

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "c10/util/intrusive_ptr.h"
#include "parallel/comm/diagnosis/collective_log.h"

namespace c10d {
class Store;
}  // namespace c10d

namespace rankwise {

// What a rank publishes about itself once a second.
struct Pulse {
  // What a rank is to another. It publishes the first three itself.
  enum class Life {
    kAlive,    // of a peer: its heart beat after the question was put
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
  std::string host;                     // of a job on several; else empty
  std::string doing;                    // the last it started in any group
  std::vector<GroupProgress> progress;  // by CollectiveLog's number of a group
};
std::string FormatPulse(const Pulse& pulse);
std::optional<Pulse> ParsePulse(const std::string& text);  // none if malformed

// Publishes this rank's pulse from a thread of its own until destroyed, or
// until the store is gone.
class Heartbeat {
 public:
  // `host`: where this rank is, for messages; empty: where all are.
  Heartbeat(c10::intrusive_ptr<c10d::Store> store, int rank,
            std::shared_ptr<const CollectiveLog> log,
            const std::string& host = "");
  ~Heartbeat();
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

  // Publishes at once that `failure` (a collective's description) has failed
  // here. Returns this rank's place among those that failed, from 1; 0 when the
  // store is gone.
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

// For the launcher, which knows at once: notes in the ranks' store that `rank`
// has died, and how ("killed by signal 9"), or whether it is stopped (SIGSTOP).
void ReportDeath(c10d::Store& store, int rank, const std::string& how);
// A rank tells the launcher that from now on all of them can do without those
// that the job does not need; before, the others would wait for them.
void AllowDeaths(c10d::Store& store);
bool DeathsAllowed(c10d::Store& store);
// A rank tells the launcher that a restarted job would fail in the same way.
void ForbidRestart(c10d::Store& store);
bool RestartForbidden(c10d::Store& store);

void ReportStop(c10d::Store& store, int rank, bool is_stopped);

// A rank held to be the cause of another's failure, and why: "rank 1 has left
// the job; ...".
struct Blame {
  int rank = 0;
  std::string what;
};
// Notes the first of `blames`, if any, as why `rank` has failed; nothing when
// the store is gone.
void ReportBlame(c10d::Store& store, int rank,
                 const std::vector<Blame>& blames);
// The root cause of `rank`'s failure, found by following what ReportBlame
// stored: the rank that `rank` blames, the one that this rank blames, and so
// on. None if `rank` blames nobody. Throws what the store throws.
std::optional<Blame> RootBlameOf(c10d::Store& store, int rank);

// Whether any rank has failed, or has been reported dead. One request each;
// throw what the store throws.
bool AnyFailed(c10d::Store& store);
bool AnyDead(c10d::Store& store);

// A rank as seen by another.
struct PeerStatus {
  using Life = Pulse::Life;
  int rank = 0;
  Life life = Life::kSilent;
  Pulse pulse = {};        // the last that it published
  std::string death = {};  // of kDead: how
};
// Whether others wait for it in vain.
bool IsGone(const PeerStatus& peer);

// Asks the store about every rank but `self`. Returns as soon as one is known
// to be dead or stopped, or all have shown a sign of life; else after
// `patience`, which should be above two seconds. Unavailable when the store
// does not answer.
absl::StatusOr<std::vector<PeerStatus>> AskPeers(c10d::Store& store, int self,
                                                 int world_size,
                                                 absl::Duration patience);

// Counts this rank out; blocks until all ranks have, or `patience` is over.
void AwaitDepartures(c10d::Store& store, int world_size,
                     absl::Duration patience);

struct Failure {
  std::string attempted;  // "backward of step 17"
  int rank = 0;
  int world_size = 1;
  CollectiveReport collective;
  // This rank's place among those that failed, from 1; 0: unknown.
  int64_t order = 0;
  std::string error;  // the exception's plain message
  absl::Duration collective_timeout;
  std::string store_address;  // "host1:29500"; empty: a file, or not known
};

// Names the ranks at fault: those that are gone; else the first that failed;
// or, if a timeout was first, the ranks of the collective's own group that have
// not come as far (of a message: its other end).
//
// DeadlineExceeded when the collective timed out, Unavailable when a rank is
// gone, else Internal. `peers` is AskPeers' answer; its error means that the
// store is gone with its server.
absl::Status DescribeFailure(
    const Failure& failure,
    const absl::StatusOr<std::vector<PeerStatus>>& peers);

// Asks the other ranks through `store`, for up to 2.5 s, describes what they
// say, and notes there, for the launcher, whom this rank blames.
absl::Status ExplainByPeers(const Failure& failure, c10d::Store& store);

// Of ranks that called different collectives: FailedPrecondition.
absl::Status DescribeMismatch(const Failure& failure);

// The same for an exception that no collective caused.
absl::Status DescribeOtherFailure(const Failure& failure);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_COMM_DIAGNOSIS_PEERS_H_
