// The algorithm and protocol chosen by NCCL, read from its log, which is
// enabled for one call.
#ifndef RANKWISE_COMM_BENCH_NCCL_NCCL_LOG_H_
#define RANKWISE_COMM_BENCH_NCCL_NCCL_LOG_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace rankwise::comm_bench {

// Choices in a log: "RING" and "SIMPLE"; "RING,TREE" if calls differ; ""
// without any. For NCCL's symmetric kernels, "SYMMETRIC" and the kernel's name.
struct NcclChoices {
  std::string algorithm, protocol;
};

// Parses NCCL's log; ignores other lines. NCCL 2.24 and later write a line per
// collective with NCCL_DEBUG=INFO and NCCL_DEBUG_SUBSYS=TUNING, only on rank 0
// of a communicator; 2.28.9's are
//   HOST:PID:TID [DEVICE] NCCL INFO AllReduce: 1048576 Bytes -> Algo RING proto
//   SIMPLE channel{Lo..Hi}={0..31}
//   ... AllReduce [Symmetric]: 1048576 Bytes -> Kernel NAME nchannels 8 ...
// (scheduleCollTasksToPlan in src/enqueue.cc,
// src/scheduler/symmetric_sched.cc). Sends, receives and communicators of one
// rank have none.
NcclChoices ParseNcclLog(absl::string_view log);

// NCCL publishes its choices only in its log, and a log that is always enabled
// would cost every call a line. This library, at the boundary to NCCL,
// therefore sets three environment variables to its own file: NCCL then logs
// warnings there and, between On and Off, its tuning. On, Off and the
// destructor forward the warnings to stderr before the file is emptied or
// deleted; later warnings, and those of a killed process, are lost. Not
// thread-safe; during its lifetime and afterwards, NCCL's log does not follow
// the caller's environment.
class NcclLogSwitch {
 public:
  // Returns NCCL_DEBUG, NCCL_DEBUG_SUBSYS and NCCL_DEBUG_FILE.
  static const std::vector<std::string>& Variables();

  // Must be called before the process has other threads: it adds variables,
  // which other threads must not read meanwhile; On and Off only replace
  // values. `reread` makes NCCL read its variables again at its next line.
  // FailedPrecondition if one of the variables is set, so that the user's log
  // is preserved. Unavailable if the file cannot be created.
  static absl::StatusOr<std::unique_ptr<NcclLogSwitch>> Take(
      std::function<void()> reread);
  ~NcclLogSwitch();
  NcclLogSwitch(const NcclLogSwitch&) = delete;
  NcclLogSwitch& operator=(const NcclLogSwitch&) = delete;

  void On();
  // Returns the log since On.
  std::string Off();

 private:
  NcclLogSwitch(std::string path, std::function<void()> reread);

  const std::string path_;
  const std::function<void()> reread_;
};

// Calls ncclResetDebugInit, which NCCL exports but no longer documents; does
// nothing in a build without CUDA.
void RereadNcclVariables();

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_NCCL_NCCL_LOG_H_
