// What one rank communicates during a stretch of its program, call by call.
#ifndef RANKWISE_PARALLEL_COMM_DIAGNOSIS_TRAFFIC_H_
#define RANKWISE_PARALLEL_COMM_DIAGNOSIS_TRAFFIC_H_

#include <cstdint>
#include <string>
#include <vector>

#include "c10/core/ScalarType.h"

namespace rankwise {

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
  int64_t start_ns = 0;
  // When the rank first waited for it: known of messages where completion is
  // watched (Gloo).
  int64_t wait_start_ns = 0;
  // A collective's own end; a message's as its waiter learns of it.
  int64_t end_ns = 0;
  // Where nobody sees the end itself (NCCL): when it was first known to be
  // over, up to Watchdog's polling interval later than it was.
  int64_t ended_before_ns = 0;
};

// A type as PyTorch spells it in Python: "float32".
std::string PythonDtypeName(c10::ScalarType dtype);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_COMM_DIAGNOSIS_TRAFFIC_H_
