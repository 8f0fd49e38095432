// Signals that end a job. A scheduler that needs the machine preempts a job by
// SIGTERM, or by SIGUSR1 some time before (Slurm: --signal=USR1@60). The job
// then finishes its step, saves a checkpoint and exits with kPreempted.
#ifndef RANKWISE_PARALLEL_LAUNCH_SIGNALS_H_
#define RANKWISE_PARALLEL_LAUNCH_SIGNALS_H_

#include <signal.h>

#include "absl/status/status.h"

namespace rankwise {

// EX_TEMPFAIL of <sysexits.h>: the job is incomplete; run it again.
inline constexpr int kPreempted = 75;

bool IsPreemption(int signal);

// From now on the first SIGTERM or SIGUSR1 only makes Preempted() true. A
// second one ends the process as usual, unless it arrives within a second: the
// scheduler and the launcher may both send the first to every rank. Call it on
// the main thread.
void CatchPreemption();

// Whether this process has received one. Other ranks may not have.
bool Preempted();

// Blocks the signals of a launcher, which reads them instead, until destroyed:
// SIGTERM, SIGCHLD and, unless ignored at the start, SIGINT and SIGHUP. nohup
// ignores SIGHUP, and a shell script ignores SIGINT in programs that it starts
// with "&".
class LauncherSignals {
 public:
  ~LauncherSignals();
  // `usr1`: also SIGUSR1. Call it before any thread is started, since threads
  // inherit the mask.
  absl::Status Block(bool usr1);
  int fd() const { return fd_; }  // a signalfd, non-blocking
  const sigset_t& previous_mask() const { return previous_mask_; }

 private:
  sigset_t previous_mask_;
  int fd_ = -1;
};

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_LAUNCH_SIGNALS_H_
