// What one rank communicates during a stretch of its program, call by call.
#ifndef RANKWISE_PARALLEL_COMM_TRAFFIC_H_
#define RANKWISE_PARALLEL_COMM_TRAFFIC_H_

#include <cstdint>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "c10/util/ArrayRef.h"

namespace rankwise {

// One collective or message. Times are of the steady clock in nanoseconds; 0
// where nobody saw the moment.
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
  int64_t start_ns = 0;
  // When the rank first waited for it: known of messages where completion is
  // watched (Gloo).
  int64_t wait_start_ns = 0;
  // A collective's own end; a message's as its waiter learns of it.
  int64_t end_ns = 0;
  // Where nobody sees the end itself (NCCL): when it was first known to be
  // over, up to CollectiveWatch's interval later than it was.
  int64_t ended_before_ns = 0;
};

// A type as PyTorch spells it in Python: "float32".
std::string PythonDtypeName(c10::ScalarType dtype);

// The events as they come. Not thread-safe: CollectiveLog, whose tickets these
// are, calls it under its lock.
class TrafficRecorder {
 public:
  struct Noted {
    uint64_t ticket = 0;
    const char* op = "";
    int64_t bytes = 0;
    int64_t count = 0;
    c10::ScalarType dtype = c10::ScalarType::Undefined;
    int peer = -1;
    int group = 0;
    int64_t start_ns = 0;
    int64_t wait_start_ns = 0;
    int64_t end_ns = 0;
    int64_t ended_before_ns = 0;
  };

  // Forgets what was noted. Room for kRoom events is allocated here, not in
  // Add.
  void Start();
  // No more events; those noted may still end.
  void Stop() { on_ = false; }
  bool on() const { return on_; }

  // Tickets never fall. An event without an end of its own (a mark) carries the
  // ticket of the event after it. Ignored while off.
  void Add(uint64_t ticket, const char* op, at::ArrayRef<at::Tensor> tensors,
           int group, int peer, int64_t start_ns);
  // Ignored for a ticket that was not noted.
  void Waited(uint64_t ticket, int64_t now_ns);
  void Ended(uint64_t ticket, int64_t now_ns);
  void SeenEnded(uint64_t ticket, int64_t now_ns);

  // Stops, and hands over what was noted.
  std::vector<Noted> Take();

 private:
  static constexpr size_t kRoom = 4096;
  Noted* Find(uint64_t ticket);

  bool on_ = false;
  std::vector<Noted> noted_;
};

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_COMM_TRAFFIC_H_
