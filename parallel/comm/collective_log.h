// What this rank's collectives are doing: the last ones started, which of them
// are in flight or have failed, and since when.
#ifndef RANKWISE_PARALLEL_COMM_COLLECTIVE_LOG_H_
#define RANKWISE_PARALLEL_COMM_COLLECTIVE_LOG_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>

#include "ATen/core/Tensor.h"
#include "c10/util/ArrayRef.h"

namespace rankwise {

// A collective as shown to people.
struct CollectiveReport {
  enum class State { kNone, kInFlight, kDone, kFailed, kUnobserved };
  State state = State::kNone;
  // 1 is the group's first collective. Equal on all ranks for the same
  // collective; send and recv carry the number of the collective before them.
  uint64_t sequence = 0;
  int peer = -1;             // of send and recv
  std::string description;   // "all_reduce #17 of [[64, 3], [10]] float32"
  double seconds_since = 0;  // since it was started
};

// Thread-safe. Starting and ending a collective cost well under a microsecond
// and allocate nothing.
class CollectiveLog {
 public:
  using Ticket = uint64_t;

  // Notes the start of collective `name` (a string literal) over `tensors`.
  // `observed` says that End will be called.
  Ticket Begin(const char* name, at::ArrayRef<at::Tensor> tensors,
               bool observed);
  // The same for send to and recv from `peer`; they are never observed.
  Ticket BeginPointToPoint(const char* name, at::ArrayRef<at::Tensor> tensors,
                           int peer);
  void End(Ticket ticket, bool ok);

  // The oldest collective that failed; if there is none, the oldest in flight;
  // if there is none either, the last one started.
  CollectiveReport Suspect() const;
  CollectiveReport LastStarted() const;
  // Collectives whose end is awaited.
  int in_flight() const;
  // Steady-clock time of the last start; 0 before the first.
  int64_t last_start_ns() const { return last_start_ns_.load(); }
  // Seconds during which at least one observed collective was in flight.
  double busy_seconds() const;

 private:
  static constexpr int kEntries = 128;
  static constexpr int kTensors = 4;
  static constexpr int kDims = 6;

  struct Shape {
    int dims = 0;
    std::array<int64_t, kDims> sizes;
  };
  struct Entry {
    CollectiveReport::State state = CollectiveReport::State::kNone;
    Ticket ticket = 0;
    uint64_t sequence = 0;
    int64_t start_ns = 0;
    const char* name = "";
    int peer = -1;
    size_t tensors = 0;  // of which the first kTensors have their shape kept
    c10::ScalarType dtype = c10::ScalarType::Undefined;
    std::array<Shape, kTensors> shapes;
  };

  Entry& NewEntry(const char* name, at::ArrayRef<at::Tensor> tensors);
  static CollectiveReport Report(const Entry& entry);
  const Entry* Oldest(CollectiveReport::State state) const;

  mutable std::mutex mutex_;
  std::array<Entry, kEntries> entries_;
  Ticket next_ticket_ = 1;
  uint64_t sequence_ = 0;
  int in_flight_ = 0;
  int64_t busy_since_ns_ = 0;
  int64_t busy_ns_ = 0;
  std::atomic<int64_t> last_start_ns_{0};
};

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_COMM_COLLECTIVE_LOG_H_
