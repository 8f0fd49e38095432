// Records this rank's collectives: those in flight or failed, and since when;
// on demand, all its communication. Also the backend that records its calls
// here.
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

// A collective as shown to users.
struct CollectiveReport {
  enum class State { kNone, kInFlight, kDone, kFailed, kUnobserved };
  State state = State::kNone;
  int group = 0;           // number in CollectiveLog
  std::vector<int> ranks;  // of the group; empty for all ranks
  // Equal on all ranks of the group for the same collective, from 1. send and
  // recv have the number of the collective before them.
  uint64_t sequence = 0;
  int peer = -1;  // rank of the job, for send and recv
  // "all_reduce #17 of [[64, 3], [10]] float32"; in a group of some ranks
  // "all_reduce #3 of group dp (ranks 0, 2) of [[4]] float32".
  std::string description;
  double seconds_since = 0;  // since its start
  // For kFailed: seconds in flight, or of the wait. Backends fail alike at a
  // timeout and at a lost connection; this separates the two.
  double seconds_to_failure = 0;
  // Places of the job's ranks, set by SetRankPlaces; empty if unknown.
  std::vector<std::string> places;
};

// A rank's progress in one of its groups.
struct GroupProgress {
  uint64_t sequence = 0;  // of the last collective started there
  std::string doing;      // last collective or message; "" before it
};

// One collective or point-to-point message. Times are in steady-clock
// nanoseconds; 0 if unknown.
struct CommEvent {
  // "all_reduce", "send", "recv", ... "start_coalescing" precedes calls that
  // one "coalesced" launches together.
  std::string op;
  int64_t bytes = 0;  // of the tensors passed or received
  int64_t count = 0;  // elements
  std::string dtype;  // "float32"; "" without tensors
  // A rank of the job: the peer of a message, or the root of a collective.
  int peer = -1;
  std::vector<int> ranks = {};  // of the group; empty for all ranks
  std::string group = {};       // group name, "tp"; "" for all ranks
  int64_t start_ns = 0;
  // When the rank first waited for it. Recorded for messages only, and not if
  // completion is polled.
  int64_t wait_start_ns = 0;
  // When the collective completed, or when the rank waiting for a message
  // observed its completion. Unknown if completion is polled (NCCL).
  int64_t end_ns = 0;
};

// The Python name of a type: "float32".
std::string PythonDtypeName(c10::ScalarType dtype);

// Thread-safe. Recording the start and end of a collective takes well under a
// microsecond and does not allocate.
//
// Each group numbers its own collectives. Group 0 contains all ranks; ranks add
// other groups in the same order, so that their numbers agree.
class CollectiveLog {
 public:
  using Ticket = uint64_t;

  CollectiveLog();

  // Adds a group of the job's `ranks` and returns its number.
  int AddGroup(const std::string& name, std::vector<int> ranks);

  // Sets each rank's place on the mesh, for reports: "pp 1, tp 0".
  void SetRankPlaces(std::vector<std::string> places);

  // Records the start of collective `name` (a string literal). `observed`:
  // whether End will be called. `root`: a rank of the group, or -1.
  Ticket Begin(const char* name, at::ArrayRef<at::Tensor> tensors,
               bool observed, int group = 0, int root = -1);
  void End(Ticket ticket, bool ok);

  // Records a send to or recv from rank `peer` of the group (-1: any). They do
  // not count as in flight: a recv may be posted long before it is due.
  Ticket BeginPointToPoint(const char* name, at::ArrayRef<at::Tensor> tensors,
                           int peer, int group = 0);
  // `waited`: length of the wait. Returns false if the start was overwritten.
  bool EndPointToPoint(Ticket ticket, bool ok,
                       absl::Duration waited = absl::ZeroDuration());

  // Counts `ticket` (an unobserved collective, or a message) as in flight until
  // EndFollowed, since its completion is polled.
  void Follow(Ticket ticket);
  void EndFollowed(Ticket ticket, bool ok);

  // Between StartTraffic and StopTraffic every call is also recorded as a
  // CommEvent. TakeTraffic stops, waits up to 0.1 s for calls in flight, and
  // returns the events.
  void StartTraffic();
  void StopTraffic();
  std::vector<CommEvent> TakeTraffic();
  // Records the start of the wait for a message. Only the first call per ticket
  // counts.
  void WaitPointToPoint(Ticket ticket);
  // Records the start of calls that the next "coalesced" launches.
  void StartCoalescing(int group);

  // Returns the oldest failed collective; if there is none, the oldest in
  // flight; otherwise the last one started.
  CollectiveReport Suspect() const;
  CollectiveReport LastStarted() const;
  std::vector<GroupProgress> Progress() const;  // indexed by group number
  // Number of incomplete collectives and followed messages.
  int in_flight() const;
  // Steady-clock time of the last start, in ns; 0 before the first.
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
    size_t tensors = 0;  // only the first kTensors have shapes
    c10::ScalarType dtype = c10::ScalarType::Undefined;
    std::array<at::DimVector, kTensors> shapes;
  };

  struct Group {
    std::string name;        // "dp"; "" for all ranks
    std::string label;       // " of group dp (ranks 0, 2)"; "" for all ranks
    std::vector<int> ranks;  // empty for all ranks
    uint64_t sequence = 0;
    Ticket last = 0;
  };

  struct Recorded {
    Ticket ticket = 0;  // "start_coalescing" has that of the next event
    CommEvent event;
  };

  // These require `mutex_`.
  void AddEvent(Ticket ticket, const char* op, at::ArrayRef<at::Tensor> tensors,
                int group, int peer, int64_t start_ns);
  CommEvent* FindEvent(Ticket ticket);
  int RankInJob(int rank, int group) const;
  // `peer`: a rank of the group, or -1.
  Entry& NewEntry(const char* name, at::ArrayRef<at::Tensor> tensors, int group,
                  int peer);
  // Returns nullptr if the start was overwritten. `is_now`: whether the call
  // ends now, not at an unknown earlier time.
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

// How a monitored backend observes the completion of calls.
struct Monitoring {
  int group = 0;  // number in the log
  // If nullptr, completion is observed by futures and waits, for backends whose
  // futures complete with the collective (gloo, fake). Otherwise the watchdog
  // polls the Work objects, for NCCL, whose futures complete at launch. Calls
  // captured in a graph on `device` do not run and are not followed.
  std::shared_ptr<Watchdog> watchdog = nullptr;
  c10::Device device = c10::kCPU;
};

// Returns a backend that records every call in `log`. Forwards the Work objects
// of `inner` unchanged, except those without a future if there is no watchdog.
// As thread-safe as `inner`; adds about 0.1 us to a collective
// (monitored_backend_benchmark).
c10::intrusive_ptr<c10d::Backend> MakeMonitoredBackend(
    c10::intrusive_ptr<c10d::Backend> inner, std::shared_ptr<CollectiveLog> log,
    Monitoring monitoring = {});

// Returns the `inner` of a monitored backend, to measure the cost of
// monitoring, and other backends unchanged.
c10::intrusive_ptr<c10d::Backend> WithoutMonitoring(
    const c10::intrusive_ptr<c10d::Backend>& backend);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_COMM_DIAGNOSIS_COLLECTIVE_LOG_H_
