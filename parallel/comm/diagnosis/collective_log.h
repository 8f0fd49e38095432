// What this rank's collectives are doing: the last ones started, which of them
// are in flight or have failed, and since when.
#ifndef RANKWISE_PARALLEL_COMM_DIAGNOSIS_COLLECTIVE_LOG_H_
#define RANKWISE_PARALLEL_COMM_DIAGNOSIS_COLLECTIVE_LOG_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/time/time.h"
#include "c10/util/ArrayRef.h"
#include "parallel/comm/diagnosis/traffic.h"

namespace rankwise {

// A collective as shown to people.
struct CollectiveReport {
  enum class State { kNone, kInFlight, kDone, kFailed, kUnobserved };
  State state = State::kNone;
  int group = 0;           // as numbered by CollectiveLog
  std::vector<int> ranks;  // of the group; empty: all ranks
  // 1 is the group's first collective. Equal on all ranks of the group for the
  // same collective; send and recv carry the number of the collective before
  // them.
  uint64_t sequence = 0;
  int peer = -1;  // of send and recv: a rank of the job
  // "all_reduce #17 of [[64, 3], [10]] float32"; in a group of some ranks
  // "all_reduce #3 of group dp (ranks 0, 2) of [[4]] float32".
  std::string description;
  double seconds_since = 0;  // since it was started
  // Of kFailed: how long it was in flight, or a message was waited for, until
  // it failed. Backends fail alike at a timeout and at a lost connection, so
  // this is what separates the two.
  double seconds_to_failure = 0;
};

// Thread-safe. Starting and ending a collective cost well under a microsecond
// and allocate nothing.
//
// Each group of ranks counts its collectives for itself. Group 0 is that of all
// ranks. The others are numbered as they are added; ranks add theirs in the
// same order, so that two ranks of one group have the same number for it.
class CollectiveLog {
 public:
  using Ticket = uint64_t;

  CollectiveLog();

  // The number of a new group of the job's `ranks`.
  int AddGroup(const std::string& name, std::vector<int> ranks);

  // Notes the start of collective `name` (a string literal) over `tensors`.
  // `observed` says that End will be called. `root`: its rank in the group; -1:
  // there is none.
  Ticket Begin(const char* name, at::ArrayRef<at::Tensor> tensors,
               bool observed, int group = 0, int root = -1);
  void End(Ticket ticket, bool ok);

  // The same for send to and recv from rank `peer` of the group (-1: any). They
  // are not counted as in flight: a recv may be posted long before it is due.
  Ticket BeginPointToPoint(const char* name, at::ArrayRef<at::Tensor> tensors,
                           int peer, int group = 0);
  // `waited`: for how long. False when the start was so long ago that it has
  // been forgotten.
  bool EndPointToPoint(Ticket ticket, bool ok,
                       absl::Duration waited = absl::ZeroDuration());

  // The end of `ticket` (of Begin with `observed` false, or of a message) will
  // be found by polling, which tells that it has ended, but not when. From now
  // on it counts as in flight.
  void Follow(Ticket ticket);
  void EndFollowed(Ticket ticket, bool ok);

  // From StartTraffic to StopTraffic every call is also recorded as a
  // CommEvent, without allocating for the first kEventRoom of them.
  // TakeTraffic stops, and returns what was recorded since StartTraffic; it
  // gives what is in flight up to 0.1 s to end.
  void StartTraffic();
  void StopTraffic();
  std::vector<CommEvent> TakeTraffic();
  // The wait for a message begins. Only the first call for a ticket counts.
  void WaitPointToPoint(Ticket ticket);
  // The calls up to the next "coalesced" are launched by it.
  void StartCoalescing(int group);

  // The oldest collective that failed; if there is none, the oldest in flight;
  // if there is none either, the last one started.
  CollectiveReport Suspect() const;
  CollectiveReport LastStarted() const;
  // The last one started in each group.
  std::vector<CollectiveReport> Progress() const;
  // Collectives, and messages that are followed, whose end is awaited.
  int in_flight() const;
  // Steady-clock time of the last start; 0 before the first.
  int64_t last_start_ns() const { return last_start_ns_.load(); }

 private:
  static constexpr int kEntries = 128;
  static constexpr int kTensors = 4;
  static constexpr int kDims = 6;
  static constexpr size_t kEventRoom = 4096;

  struct Shape {
    int dims = 0;
    std::array<int64_t, kDims> sizes;
  };
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
    std::array<Shape, kTensors> shapes;
  };

  struct Group {
    std::string label;       // " of group dp (ranks 0, 2)"; empty for all ranks
    std::vector<int> ranks;  // empty: all
    uint64_t sequence = 0;
    Ticket last = 0;
  };

  // A CommEvent as long as nothing may be allocated.
  struct Event {
    Ticket ticket = 0;  // of a mark: that of the event after it
    const char* op = "";
    int64_t bytes = 0, count = 0;
    c10::ScalarType dtype = c10::ScalarType::Undefined;
    int peer = -1;
    int group = 0;
    int64_t start_ns = 0, wait_start_ns = 0, end_ns = 0, ended_before_ns = 0;
  };

  // These need `mutex_`.
  void AddEvent(Ticket ticket, const char* op, at::ArrayRef<at::Tensor> tensors,
                int group, int peer, int64_t start_ns);
  Event* FindEvent(Ticket ticket);
  int RankInJob(int rank, int group) const;
  static void SetEnd(Entry& entry, bool ok);
  Entry& NewEntry(const char* name, at::ArrayRef<at::Tensor> tensors,
                  int group);
  CollectiveReport Report(const Entry& entry) const;
  const Entry* Oldest(CollectiveReport::State state) const;

  mutable std::mutex mutex_;
  std::array<Entry, kEntries> entries_;
  std::vector<Group> groups_;
  Ticket next_ticket_ = 1;
  int in_flight_ = 0;
  int followed_ = 0;
  std::vector<Event> events_;  // tickets never fall
  bool adds_events_ = false;
  std::atomic<bool> ends_events_{false};
  std::atomic<int64_t> last_start_ns_{0};
};

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_COMM_DIAGNOSIS_COLLECTIVE_LOG_H_
