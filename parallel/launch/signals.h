// Signals that tell a job to end. One whose scheduler needs the machine back is
// preempted: it is sent SIGTERM, or ahead of that SIGUSR1 (Slurm:
// --signal=USR1@60), finishes its step, saves and ends with an exit code of its
// own.
#ifndef RANKWISE_PARALLEL_LAUNCH_SIGNALS_H_
#define RANKWISE_PARALLEL_LAUNCH_SIGNALS_H_

#include <signal.h>

#include "absl/status/status.h"

namespace rankwise {

// EX_TEMPFAIL of <sysexits.h>: not done, to be run again.
inline constexpr int kPreempted = 75;

bool IsPreemption(int signal);

// From now on the first of these signals only makes Preempted() true. A second
// one ends the process as usual, unless it comes within a second: schedulers
// and launchers both send the first to every rank.
void CatchPreemption();

// Whether this process was sent one. Other ranks may not have been.
bool Preempted();

// The signals that a launcher reads while this lives, instead of ending by
// them: SIGINT, SIGTERM, SIGHUP and SIGCHLD.
class LauncherSignals {
 public:
  ~LauncherSignals();
  // With `usr1` SIGUSR1, too. Before there are threads, which inherit the mask.
  absl::Status Block(bool usr1);
  int fd() const { return fd_; }  // a signalfd, non-blocking
  const sigset_t& previous_mask() const { return previous_mask_; }

 private:
  sigset_t previous_mask_;
  int fd_ = -1;
};

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_LAUNCH_SIGNALS_H_
