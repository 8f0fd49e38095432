// What this rank's collectives are doing: which are in flight or have failed,
// since when; on demand, all that it communicates; and the backend that records
// its calls here.
#ifndef RANKWISE_PARALLEL_COMM_DIAGNOSIS_COLLECTIVE_LOG_H_
#define RANKWISE_PARALLEL_COMM_DIAGNOSIS_COLLECTIVE_LOG_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "ATen/DimVector.h"
#include "ATen/core/Tensor.h"
#include "absl/time/time.h"
#include "c10/core/Device.h"
#include "c10/core/ScalarType.h"
#include "c10/util/ArrayRef.h"
#include "c10/util/intrusive_ptr.h"

namespace c10d {
class Backend;
}  // namespace c10d

namespace rankwise {

class Watchdog;

// A collective as shown to people.
struct CollectiveReport {
  enum class State { kNone, kInFlight, kDone, kFailed, kUnobserved };
  State state = State::kNone;
  int group = 0;           // as numbered by CollectiveLog
  std::vector<int> ranks;  // of the group; empty: all ranks
  // Equal on all ranks of the group for the same collective, from 1; send and
  // recv carry the number of the collective before them.
  uint64_t sequence = 0;
  int peer = -1;  // of send and recv: a rank of the job
  // "all_reduce #17 of [[64, 3], [10]] float32"; in a group of some ranks
  // "all_reduce #3 of group dp (ranks 0, 2) of [[4]] float32".
  std::string description;
  double seconds_since = 0;  // since it was started
  // Of kFailed: how long it was in flight, or waited for. Backends fail alike
  // at a timeout and at a lost connection; this separates the two.
  double seconds_to_failure = 0;
  // Of the job's ranks, as NameRanks was told; empty: not known.
  std::vector<std::string> places;
};

// How far a rank has come in one of its groups.
struct GroupProgress {
  uint64_t sequence = 0;  // of the last collective it started there
  std::string doing;      // that collective or message; empty: none yet
};

// One collective or point-to-point message. Times are of the steady clock, in
// nanoseconds; 0 where the time is not known.
struct CommEvent {
  // "all_reduce", "send", "recv", ... "start_coalescing" precedes calls that
  // one "coalesced" launches together.
  std::string op;
  int64_t bytes = 0;  // of the tensors that the rank hands over, or receives
  int64_t count = 0;  // elements
  std::string dtype;  // "float32"; "" without tensors
  // A rank of the job: the other side of a message, or a collective's root.
  int peer = -1;
  std::vector<int> ranks = {};  // of the group; empty: all ranks
  std::string group = {};       // its name, "tp"; "" for all ranks
  int64_t start_ns = 0;
  // When the rank first waited for it; known of messages over Gloo.
  int64_t wait_start_ns = 0;
  // When the collective ended, or when the rank that waits for a message
  // learned of its end. Unknown where ends are found by polling (NCCL).
  int64_t end_ns = 0;
};

// A type as PyTorch spells it in Python: "float32".
std::string PythonDtypeName(c10::ScalarType dtype);

// Thread-safe. Starting and ending a collective cost well under a microsecond
// and allocate nothing.
//
// Each group of ranks counts its collectives for itself. Group 0 is that of all
// ranks; ranks add the others in the same order, so that they number them
// alike.
class CollectiveLog {
 public:
  using Ticket = uint64_t;

  CollectiveLog();

  // The number of a new group of the job's `ranks`.
  int AddGroup(const std::string& name, std::vector<int> ranks);

  // Where each rank of the job is on its mesh, for reports: "pp 1, tp 0".
  void NameRanks(std::vector<std::string> places);

  // Notes the start of collective `name` (a string literal). `observed`: End
  // will be called. `root`: a rank of the group; -1: none.
  Ticket Begin(const char* name, at::ArrayRef<at::Tensor> tensors,
               bool observed, int group = 0, int root = -1);
  void End(Ticket ticket, bool ok);

  // The same for send to and recv from rank `peer` of the group (-1: any),
  // which do not count as in flight: a recv may be posted long before it is
  // due.
  Ticket BeginPointToPoint(const char* name, at::ArrayRef<at::Tensor> tensors,
                           int peer, int group = 0);
  // `waited`: for how long. False when the start has been forgotten.
  bool EndPointToPoint(Ticket ticket, bool ok,
                       absl::Duration waited = absl::ZeroDuration());

  // The end of `ticket` (of an unobserved collective, or of a message) will be
  // found by polling. From now on it counts as in flight.
  void Follow(Ticket ticket);
  void EndFollowed(Ticket ticket, bool ok);

  // From StartTraffic to StopTraffic every call is also recorded as a
  // CommEvent. TakeTraffic stops, gives what is in flight up to 0.1 s to end,
  // and returns what was recorded.
  void StartTraffic();
  void StopTraffic();
  std::vector<CommEvent> TakeTraffic();
  // The wait for a message begins. Only the first call for a ticket counts.
  void WaitPointToPoint(Ticket ticket);
  // The calls up to the next "coalesced" are launched by it.
  void StartCoalescing(int group);

  // The oldest collective that failed; else the oldest in flight; else the last
  // one started.
  CollectiveReport Suspect() const;
  CollectiveReport LastStarted() const;
  std::vector<GroupProgress> Progress() const;  // indexed by group number
  // Collectives, and messages that are followed, whose end is awaited.
  int in_flight() const;
  // Steady-clock time of the last start; 0 before the first.
  int64_t last_start_ns() const { return last_start_ns_.load(); }

 private:
  static constexpr int kEntries = 128;
  static constexpr size_t kTensors = 4;
  static constexpr size_t kEventRoom = 4096;

  struct Entry {
    CollectiveReport::State state = CollectiveReport::State::kNone;
    Ticket ticket = 0;
    int group = 0;
    uint64_t sequence = 0;
    int64_t start_ns = 0;
    int64_t ns_to_failure = 0;
    const char* name = "";
    int peer = -1;
    size_t tensors = 0;  // of which the first kTensors have their shape kept
    c10::ScalarType dtype = c10::ScalarType::Undefined;
    std::array<at::DimVector, kTensors> shapes;
  };

  struct Group {
    std::string name;        // "dp"; empty for all ranks
    std::string label;       // " of group dp (ranks 0, 2)"; empty for all ranks
    std::vector<int> ranks;  // empty: all
    uint64_t sequence = 0;
    Ticket last = 0;
  };

  struct Recorded {
    Ticket ticket = 0;  // "start_coalescing" has that of the event after it
    CommEvent event;
  };

  // These need `mutex_`.
  void AddEvent(Ticket ticket, const char* op, at::ArrayRef<at::Tensor> tensors,
                int group, int peer, int64_t start_ns);
  CommEvent* FindEvent(Ticket ticket);
  int RankInJob(int rank, int group) const;
  // `peer`: a rank of the group; -1: none.
  Entry& NewEntry(const char* name, at::ArrayRef<at::Tensor> tensors, int group,
                  int peer);
  // Null where the start has been forgotten. `is_now`: the call ends now;
  // false: it ended at an unknown time before.
  Entry* NoteEnd(Ticket ticket, bool ok, bool is_now);
  CollectiveReport Report(const Entry& entry) const;
  const Entry* Oldest(CollectiveReport::State state) const;

  mutable std::mutex mutex_;
  std::array<Entry, kEntries> entries_;
  std::vector<Group> groups_;
  std::vector<std::string> places_;  // by rank
  Ticket next_ticket_ = 1;
  int in_flight_ = 0;
  int followed_ = 0;
  std::vector<Recorded> events_;  // in order of ticket
  bool adds_events_ = false;
  std::atomic<bool> ends_events_{false};
  std::atomic<int64_t> last_start_ns_{0};
};

// How a monitored backend learns that calls have ended.
struct Monitoring {
  int group = 0;  // as numbered by the log
  // If null, ends are learned from futures and waits; for backends whose
  // futures complete with the collective (gloo, fake). Otherwise the watchdog
  // polls the Work objects; for NCCL, whose futures complete at launch. Calls
  // made while a graph is captured on `device` do not run then and are not
  // followed.
  std::shared_ptr<Watchdog> watchdog = nullptr;
  c10::Device device = c10::kCPU;
};

// A backend that records every call in `log`. Forwards the Work objects of
// `inner` unchanged, except for those without futures, without a watchdog. As
// thread-safe as `inner`; adds about 0.1 us to a collective
// (monitored_backend_benchmark).
c10::intrusive_ptr<c10d::Backend> MakeMonitoredBackend(
    c10::intrusive_ptr<c10d::Backend> inner, std::shared_ptr<CollectiveLog> log,
    Monitoring monitoring = {});

// The `inner` of a monitored backend, to measure what monitoring costs; any
// other backend is returned as it is.
c10::intrusive_ptr<c10d::Backend> WithoutMonitoring(
    const c10::intrusive_ptr<c10d::Backend>& backend);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_COMM_DIAGNOSIS_COLLECTIVE_LOG_H_
