// Starts N ranks of this very program on this machine and looks after them.
#ifndef RANKWISE_PARALLEL_LAUNCH_LAUNCHER_H_
#define RANKWISE_PARALLEL_LAUNCH_LAUNCHER_H_

#include <string>

#include "absl/time/time.h"

namespace rankwise {

struct LaunchConfig {
  // Ranks to start, at least 1.
  int nproc = 1;
  // Folder that takes every rank's output as rank_R.log (created if missing);
  // then only rank 0's output is shown. Empty: all output is shown.
  std::string log_dir;
  // The ranks connect by MPI, which finds them through a PMIx server in the
  // launcher.
  bool serves_pmix = false;
  // From the first rank's death, or a signal to the launcher, to the moment at
  // which the last of the others is gone: SIGTERM first, SIGKILL near the end.
  absl::Duration grace = absl::Seconds(5);
  // Ranks from this number on may fail, except by bad usage: the job continues
  // without them, as long as one of them still runs or has returned 0. With 0
  // the job needs all ranks.
  int needed_ranks = 0;
  // A rank that has been stopped (SIGSTOP) for this long is killed once no
  // other rank runs, since only other ranks would notice it.
  absl::Duration stop_limit = absl::Minutes(5);
  // How many times a failed job is restarted.
  int max_restarts = 0;
  // The ranks call CatchPreemption(), and are given time to save.
  bool ranks_save_when_preempted = false;
};

// Executes this binary `config.nproc` times with the same arguments and with
// torchrun's variables set (see rank_env.h), and blocks until all have ended.
// The launcher hosts the ranks' store on a free loopback port.
//
// Output: rank 0's is shown as it is, and goes straight to the terminal if
// there is one, so that its progress bar works; lines of the others are shown
// whole and begin with "[rank R] ". Ranks call PrepareRankProcess() first, and
// read an empty stdin.
//
// Returns the exit code for main(): 0 when every rank returned 0 and their
// output could be passed on (kFailed when it could not); the code of
// the first rank that ended otherwise, or 128 + its signal; 128 + signal when
// the launcher itself was told to end (SIGINT, SIGTERM, SIGHUP: forwarded; a
// second one kills at once; SIGINT and SIGHUP not if they were ignored when it
// started, as under nohup). The failure is reported on stderr: the rank that
// ended first, or, when that has ended because of another, the other; and the
// last lines that it wrote there. Ranks learn from the launcher at once that
// one of them has died, or is stopped. No rank outlives the launcher, also if
// the launcher is killed.
//
// If a rank fails that the job does not need (needed_ranks), the launcher only
// logs it, unless it failed because a needed rank is stopped; the other ranks
// determine the exit code. A rank that stays stopped when all others have ended
// (stop_limit) is killed, and counts as failed.
//
// If a rank fails and the launcher was not told to end, all ranks are
// restarted, up to `max_restarts` times. TORCHELASTIC_RESTART_COUNT is set as
// by torchrun; RankEnv describes the failure. Ranks that ended with kBadUsage,
// which would only occur again, or kPreempted are not restarted. With
// `ranks_save_when_preempted`, SIGTERM and SIGUSR1 are forwarded without a time
// limit, and the exit code is kPreempted if the ranks end with that code.
//
// Call it from main() before any thread is started. The number of threads per
// rank is left to the ranks: OMP_NUM_THREADS is passed on as it is.
//
//   if (absl::GetFlag(FLAGS_nproc) > 1 && !InsideLauncher()) {
//     return LaunchRanks({.nproc = absl::GetFlag(FLAGS_nproc)}, argc, argv);
//   }
int LaunchRanks(const LaunchConfig& config, int argc, char** argv);

// What a rank sets for its whole process. Called first thing in its main(),
// before any other thread: libraries set nothing of the kind.
// - stdout, which may be a pipe, writes each line when it ends, so that lines
//   appear when they are printed and survive the rank's death.
// - c10's log shows fatal errors only: what goes wrong in c10d comes back as an
//   exception, and is told once, in our words. Warnings of the calling thread
//   (TORCH_WARN) are still printed. TORCH_CPP_LOG_LEVEL=INFO shows the log.
// - output that cannot be written is a failure (CheckStandardOutputAtExit).
// - NCCL's variables: see PrepareForNccl().
// - IgnoreSigpipe(): a lost peer or reader becomes a write error.
void PrepareRankProcess();

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_LAUNCH_LAUNCHER_H_
