// NCCL's log, switched on for a moment and read.
#ifndef RANKWISE_COMM_BENCH_NCCL_NCCL_LOG_SWITCH_H_
#define RANKWISE_COMM_BENCH_NCCL_NCCL_LOG_SWITCH_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace rankwise::comm_bench {

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

#endif  // RANKWISE_COMM_BENCH_NCCL_NCCL_LOG_SWITCH_H_
