// Starts N ranks of this program on this machine and supervises them.
#ifndef RANKWISE_PARALLEL_LAUNCH_LAUNCHER_H_
#define RANKWISE_PARALLEL_LAUNCH_LAUNCHER_H_

#include <string>

#include "absl/time/time.h"

namespace rankwise {

struct LaunchConfig {
  // Ranks to start, at least 1.
  int nproc = 1;
  // Folder for every rank's output, rank_R.log, created if missing; only rank
  // 0's output is then printed, too. If empty, all output is printed.
  std::string log_dir;
  // Whether the ranks connect by MPI, which finds them through a PMIx server in
  // the launcher.
  bool serves_pmix = false;
  // Time from the first rank's death, or a signal to the launcher, to the end
  // of all ranks: SIGTERM first, SIGKILL near the end.
  absl::Duration grace = absl::Seconds(5);
  // Ranks from this number on may fail, except by bad usage: the job continues
  // without them while one of them runs or has returned 0. With 0 the job needs
  // all ranks.
  int needed_ranks = 0;
  // A rank that has been stopped (SIGSTOP) for this long is killed once no
  // other rank runs, since only other ranks would notice it.
  absl::Duration stop_limit = absl::Minutes(5);
  // Maximum number of restarts of a failed job.
  int max_restarts = 0;
  // The ranks call CatchPreemption(), and have time to save a checkpoint.
  bool ranks_save_when_preempted = false;
};

// Executes this binary `config.nproc` times with the same arguments and with
// torchrun's variables (see rank_env.h), and blocks until all have ended. The
// launcher hosts the ranks' store on a free loopback port.
//
// Output: rank 0's is printed unchanged, and written directly to the terminal
// if there is one, so that its progress bar works; other ranks' is printed in
// whole lines that begin with "[rank R] ". Ranks call PrepareRankProcess()
// first, and read an empty stdin.
//
// Returns the exit code for main(): 0 if every rank returned 0 and all output
// was forwarded (kFailed if it was not); the code of the first rank that ended
// otherwise, or 128 + its signal; 128 + signal if the launcher received SIGINT,
// SIGTERM or SIGHUP. These are forwarded, and a second one kills at once;
// SIGINT and SIGHUP stay ignored if they were at the start, as under nohup.
// Reports on stderr the rank that ended first or, if another rank caused that,
// the other one, with the last lines that it wrote there. The launcher
// immediately informs the ranks of a dead or stopped rank. No rank outlives the
// launcher, even if the launcher is killed.
//
// The launcher only logs the failure of a rank that the job does not need
// (needed_ranks), unless it failed because a needed rank is stopped; the other
// ranks determine the exit code. A rank that is still stopped after all others
// have ended (stop_limit) is killed, and counts as failed.
//
// If a rank fails and the launcher has received no signal to end, all ranks are
// restarted, up to `max_restarts` times. TORCHELASTIC_RESTART_COUNT is set as
// by torchrun; RankEnv describes the failure. There is no restart after
// kBadUsage, which would recur, kPreempted or ForbidRestart (peers.h). With
// `ranks_save_when_preempted`, SIGTERM and SIGUSR1 are forwarded without a time
// limit, and the exit code is kPreempted if the ranks end with that code.
//
// Call it from main() before any thread is started. OMP_NUM_THREADS is passed
// on unchanged: the ranks choose their number of threads.
//
//   if (absl::GetFlag(FLAGS_nproc) > 1 && !InsideLauncher()) {
//     return LaunchRanks({.nproc = absl::GetFlag(FLAGS_nproc)}, argc, argv);
//   }
int LaunchRanks(const LaunchConfig& config, int argc, char** argv);

// Sets process-wide state of a rank, which libraries never do. Call it first in
// main(), before any other thread starts.
// - stdout, which may be a pipe, is flushed after each line, so that lines
//   appear when they are printed and survive the rank's death.
// - c10's log shows fatal errors only: c10d also throws its errors, which are
//   reported once. Warnings of the calling thread (TORCH_WARN) are still
//   printed. TORCH_CPP_LOG_LEVEL=INFO shows the log.
// - Output that cannot be written is a failure (CheckStandardOutputAtExit).
// - NCCL's variables: see PrepareForNccl().
// - IgnoreSigpipe(): a lost peer or reader becomes a write error.
void PrepareRankProcess();

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_LAUNCH_LAUNCHER_H_
