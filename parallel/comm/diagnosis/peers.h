// The state that ranks publish in the store, and the causes of a failed
// collective that follow from it (failure_report.cc).
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

// The state that a rank publishes every second.
struct Pulse {
  // State of a rank as seen by others. A rank publishes the first three.
  enum class Life {
    kAlive,    // for a peer: a heartbeat since the query
    kFailed,   // has reported a failure, even if it has ended since
    kLeft,     // has destroyed its communicator
    kDead,     // reported by the launcher
    kStopped,  // reported by the launcher
    kSilent,   // no heartbeat
    kUnknown,  // the query ended early, at another's death
  };
  Life life = Life::kAlive;
  uint64_t beat = 0;  // counts publications
  // For kFailed: 1 for the first rank to fail, and the failed call.
  int64_t failure_order = 0;
  std::string failure;
  std::string host;   // of a job on several hosts; otherwise ""
  std::string doing;  // last call started in any group
  std::vector<GroupProgress> progress;  // by group number of CollectiveLog
};
std::string FormatPulse(const Pulse& pulse);
// Returns nullopt if `text` is malformed.
std::optional<Pulse> ParsePulse(const std::string& text);

// Publishes this rank's pulse from its own thread until it is destroyed or the
// store is gone.
class Heartbeat {
 public:
  // `host`: this rank's host, for messages; "" if all are on one.
  Heartbeat(c10::intrusive_ptr<c10d::Store> store, int rank,
            std::shared_ptr<const CollectiveLog> log,
            const std::string& host = "");
  ~Heartbeat();
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

  // Publishes at once that `failure` (a collective's description) has failed
  // here. Returns this rank's number among the failed ones, from 1; 0 if the
  // store is gone.
  int64_t MarkFailed(const std::string& failure);
  // Stops the thread and publishes that this rank has left, unless it failed.
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

// For the launcher: publishes in the ranks' store that `rank` has died, and how
// ("killed by signal 9"), or whether it is stopped (SIGSTOP).
void ReportDeath(c10d::Store& store, int rank, const std::string& how);
// Called by a rank: from now on the launcher may tolerate the death of ranks
// that the job does not need. Before, other ranks would wait for them.
void AllowDeaths(c10d::Store& store);
bool DeathsAllowed(c10d::Store& store);
// Called by a rank: a restarted job would fail in the same way.
void ForbidRestart(c10d::Store& store);
bool RestartForbidden(c10d::Store& store);

void ReportStop(c10d::Store& store, int rank, bool is_stopped);

// A rank held responsible for another's failure, and why: "rank 1 has left the
// job; ...".
struct Blame {
  int rank = 0;
  std::string what;
};
// Publishes the first of `blames`, if any, as the cause of `rank`'s failure. No
// effect if the store is gone.
void ReportBlame(c10d::Store& store, int rank,
                 const std::vector<Blame>& blames);
// Returns the root cause of `rank`'s failure, found by following the blames
// stored by ReportBlame from rank to rank; nullopt if `rank` blames no rank.
// Rethrows the store's exceptions.
std::optional<Blame> RootBlameOf(c10d::Store& store, int rank);

// Whether any rank has failed, or is reported dead. One request each; rethrow
// the store's exceptions.
bool AnyFailed(c10d::Store& store);
bool AnyDead(c10d::Store& store);

// A rank as seen by another.
struct PeerStatus {
  using Life = Pulse::Life;
  int rank = 0;
  Life life = Life::kSilent;
  Pulse pulse = {};        // last published
  std::string death = {};  // cause of death, for kDead
};
// Whether waiting for the rank is futile.
bool IsGone(const PeerStatus& peer);

// Queries the store about every rank but `self`. Returns once one is known to
// be dead or stopped, or all have shown a sign of life; otherwise after
// `patience`, which should exceed two seconds. Unavailable if the store does
// not answer.
absl::StatusOr<std::vector<PeerStatus>> QueryPeers(c10d::Store& store, int self,
                                                   int world_size,
                                                   absl::Duration patience);

// Counts this rank out; blocks until all ranks have done so, or for `patience`.
void AwaitDepartures(c10d::Store& store, int world_size,
                     absl::Duration patience);

struct Failure {
  std::string attempted;  // "backward of step 17"
  int rank = 0;
  int world_size = 1;
  CollectiveReport collective;
  // This rank's number among the failed ones, from 1; 0 if unknown.
  int64_t order = 0;
  std::string error;  // the exception's plain message
  absl::Duration collective_timeout;
  std::string store_address;  // "host1:29500"; "" for a file, or if unknown
};

// Names the ranks at fault: those that are gone; else the first that failed;
// or, if a timeout came first, the ranks of the collective's own group that
// have not started it (for a message, its peer).
//
// DeadlineExceeded if the collective timed out, Unavailable if a rank is gone,
// else Internal. `peers` is the result of QueryPeers; an error means that the
// store is gone with its server.
absl::Status DescribeFailure(
    const Failure& failure,
    const absl::StatusOr<std::vector<PeerStatus>>& peers);

// Queries the other ranks through `store`, for up to 2.5 s, describes the
// failure, and publishes this rank's blame there for the launcher.
absl::Status ExplainByPeers(const Failure& failure, c10d::Store& store);

// FailedPrecondition, for ranks that called different collectives.
absl::Status DescribeMismatch(const Failure& failure);

// The same for an exception that no collective caused.
absl::Status DescribeOtherFailure(const Failure& failure);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_COMM_DIAGNOSIS_PEERS_H_
