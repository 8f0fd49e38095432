// What NCCL's log tells of the algorithm and protocol that it chose.
#ifndef RANKWISE_COMM_BENCH_NCCL_NCCL_LOG_H_
#define RANKWISE_COMM_BENCH_NCCL_NCCL_LOG_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace rankwise::comm_bench {

struct NcclChoice {
  std::string call;       // "AllReduce"
  int64_t bytes = 0;      // as NCCL counts: of one rank's part for AllGather
                          // and ReduceScatter
  std::string algorithm;  // "RING"; "SYMMETRIC" for its symmetric kernels
  std::string protocol;   // "SIMPLE", or the symmetric kernel's name

  friend bool operator==(const NcclChoice&, const NcclChoice&) = default;
};

// The choices in the order of the log; other lines mean nothing. NCCL 2.24 and
// later write a line per collective with NCCL_DEBUG=INFO and
// NCCL_DEBUG_SUBSYS=TUNING, on rank 0 of a communicator only; 2.28.9's are
//   HOST:PID:TID [DEVICE] NCCL INFO AllReduce: 1048576 Bytes -> Algo RING proto
//   SIMPLE channel{Lo..Hi}={0..31}
//   ... AllReduce [Symmetric]: 1048576 Bytes -> Kernel NAME nchannels 8 ...
// (scheduleCollTasksToPlan in src/enqueue.cc,
// src/scheduler/symmetric_sched.cc). Sends, receives and communicators of one
// rank have none.
std::vector<NcclChoice> ParseNcclLog(absl::string_view log);

// One text for several calls: "RING", or "RING,TREE" where they differ.
struct ChosenNames {
  std::string algorithm, protocol;  // "" where there are none
};
ChosenNames NamesOf(const std::vector<NcclChoice>& choices);

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_NCCL_NCCL_LOG_H_
