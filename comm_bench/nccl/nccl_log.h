// What NCCL's log tells of the algorithm and protocol that it chose: the log is
// switched on for one call, and read.
#ifndef RANKWISE_COMM_BENCH_NCCL_NCCL_LOG_H_
#define RANKWISE_COMM_BENCH_NCCL_NCCL_LOG_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace rankwise::comm_bench {

// Of the calls of a log, such as "RING" and "SIMPLE"; "RING,TREE" where calls
// differ; "" where there are none. For NCCL's symmetric kernels "SYMMETRIC" and
// the kernel's name.
struct NcclChoices {
  std::string algorithm, protocol;
};

// Other lines mean nothing. NCCL 2.24 and later write a line per collective
// with NCCL_DEBUG=INFO and NCCL_DEBUG_SUBSYS=TUNING, on rank 0 of a
// communicator only; 2.28.9's are
//   HOST:PID:TID [DEVICE] NCCL INFO AllReduce: 1048576 Bytes -> Algo RING proto
//   SIMPLE channel{Lo..Hi}={0..31}
//   ... AllReduce [Symmetric]: 1048576 Bytes -> Kernel NAME nchannels 8 ...
// (scheduleCollTasksToPlan in src/enqueue.cc,
// src/scheduler/symmetric_sched.cc). Sends, receives and communicators of one
// rank have none.
NcclChoices ParseNcclLog(absl::string_view log);

// NCCL writes what it chooses to its log only, and a log that is always on
// would cost every call a line. So this library, at the boundary to NCCL, sets
// three environment variables to a file of its own: NCCL then logs warnings
// there, and between On and Off what it tunes. On, Off and the destructor pass
// the warnings on to stderr, before the file is emptied or deleted; one that
// comes later, or of a process that is killed, is not seen. Not thread-safe;
// while it lives, and after, NCCL's log is not what the caller's environment
// said.
class NcclLogSwitch {
 public:
  // NCCL_DEBUG, NCCL_DEBUG_SUBSYS and NCCL_DEBUG_FILE.
  static const std::vector<std::string>& Variables();

  // To be called before the process has other threads: it adds variables, which
  // other threads must not read meanwhile; On and Off only replace values.
  // `reread` makes NCCL read its variables again at its next line.
  // FailedPrecondition where one of the variables is set: the user's log is
  // left alone. Unavailable without a place for the file.
  static absl::StatusOr<std::unique_ptr<NcclLogSwitch>> Take(
      std::function<void()> reread);
  ~NcclLogSwitch();
  NcclLogSwitch(const NcclLogSwitch&) = delete;
  NcclLogSwitch& operator=(const NcclLogSwitch&) = delete;

  void On();
  // What has been logged since On.
  std::string Off();

 private:
  NcclLogSwitch(std::string path, std::function<void()> reread);

  const std::string path_;
  const std::function<void()> reread_;
};

// ncclResetDebugInit, which NCCL exports but no longer promises; nothing in a
// build without CUDA.
void RereadNcclVariables();

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_NCCL_NCCL_LOG_H_
