#include "parallel/launch/launcher.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "c10/util/Exception.h"
#include "c10/util/Logging.h"
#include "parallel/clock/steady_time.h"
#include "parallel/comm/backends/backends.h"
#include "parallel/comm/diagnosis/peers.h"
#include "parallel/comm/rendezvous.h"
#include "parallel/launch/attempt.h"
#include "parallel/launch/pmix_server.h"
#include "parallel/launch/rank_process.h"
#include "parallel/launch/signals.h"
#include "records/command_line.h"
#include "records/standard_output.h"
#include "records/text.h"
#include "third_party/absl/status_macros.h"
#include "torch/csrc/distributed/c10d/Store.hpp"

namespace rankwise {
namespace {

constexpr size_t kLastLines = 10;
constexpr int kCannotStart = 1;

void Say(absl::string_view message) {
  WriteFully(STDERR_FILENO, absl::StrCat("[launcher] ", message, "\n"));
}

// A rank, its output and its end.
struct Child {
  int rank = 0;
  RankProcess process;
  int log_fd = -1;
  bool running = true;
  std::optional<SteadyTime> stopped;  // time of the SIGSTOP, if stopped
  bool succeeded = false;
  std::unique_ptr<LineRelay> out, err;
};

class Launcher {
 public:
  Launcher(const LaunchConfig& config, const Attempt& attempt,
           const LauncherSignals& signals, int argc, char** argv)
      : config_(config),
        attempt_(attempt),
        signals_(signals),
        argv_(argv, argv + argc) {}
  ~Launcher();

  absl::Status Start();
  // Blocks until all ranks have ended; returns main()'s exit code.
  int Supervise();
  // After Supervise(): the next attempt, if the ranks failed and should
  // restart.
  std::optional<Attempt> Restart() const;
  // Output of the ranks that could not be forwarded, and why; "" if none.
  const std::string& lost_output() const { return lost_output_; }

 private:
  absl::Status StartChild(int rank);
  absl::Status OpenLog(Child& child);
  LineRelay::Sink SinkFor(const Child& child, int terminal_fd);
  void PassOn(int fd, absl::string_view line, const std::string& where);

  void AbandonStart();
  // Waits up to `patience` for an event, then handles output, signals, ranks
  // that have ended and deadlines that have passed.
  void Attend(absl::Duration patience);
  void Poll(absl::Duration patience);
  void ReadSignals();
  void ReapChildren();
  void NoteStops(Child& child);
  void NoteEnd(Child& child, int wait_status);
  bool IsExpendable(const Child& child, int exit_code);
  std::optional<Blame> CauseOf(const Child& child);
  bool BlamesStoppedNeeded(const Child& child);
  void ReportFailure(Child& ended, const std::string& how);
  void EnforceDeadlines();
  void SignalAll(int signal);
  bool AnyRunning() const;
  bool WorkIsLost() const;
  // Time until the first stopped rank is killed; infinite while any running
  // rank is not stopped, or no rank has ended.
  absl::Duration LeftToStopped() const;

  const LaunchConfig config_;
  const Attempt attempt_;
  const LauncherSignals& signals_;
  const std::vector<std::string> argv_;
  const absl::Time started_ = absl::Now();
  HostedStore hosted_;
  std::vector<std::vector<std::string>> pmix_;  // environment entries by rank
  std::vector<Child> children_;

  std::optional<int> exit_code_;  // once decided
  bool told_to_end_ = false;      // by a signal
  bool abandoned_ = false;        // not all ranks were started
  bool bad_usage_ = false;        // a rank returned kBadUsage
  std::string cause_;             // of the failure
  std::string lost_output_;
  absl::Time failed_;
  // Times of SIGTERM, then SIGKILL, to the remaining ranks.
  Deadline terminate_{absl::InfiniteDuration()};
  Deadline kill_{absl::InfiniteDuration()};
};

Launcher::~Launcher() {
  for (Child& child : children_) {
    if (child.running) {  // only if not all could be started
      kill(-child.process.pid, SIGKILL);
      waitpid(child.process.pid, nullptr, 0);
    }
    for (const int fd :
         {child.process.stdout_fd, child.process.stderr_fd, child.log_fd}) {
      if (fd >= 0) close(fd);
    }
  }
}

absl::Status Launcher::Start() {
  if (config_.nproc < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("nproc=", config_.nproc, " must be at least 1"));
  }
  if (!config_.log_dir.empty() && mkdir(config_.log_dir.c_str(), 0777) != 0 &&
      errno != EEXIST) {
    return absl::InvalidArgumentError(absl::StrCat(
        "cannot create log_dir '", config_.log_dir, "': ", strerror(errno)));
  }
  ASSIGN_OR_RETURN(hosted_, HostStore(attempt_.restart));
  if (config_.serves_pmix) {
    ASSIGN_OR_RETURN(pmix_, ServePmix(config_.nproc));
  }
  for (int rank = 0; rank < config_.nproc; ++rank) {
    RETURN_IF_ERROR(StartChild(rank));
    Attend(absl::ZeroDuration());
    if (told_to_end_ || exit_code_.has_value()) {
      AbandonStart();
      break;
    }
  }
  return absl::OkStatus();
}

// The running ranks would wait for those that were not started.
void Launcher::AbandonStart() {
  const int missing = config_.nproc - static_cast<int>(children_.size());
  if (missing == 0) return;
  Say(absl::StrCat(Counted(missing, "rank"), " of ", config_.nproc,
                   " not started; killing the others"));
  abandoned_ = true;
  exit_code_ = exit_code_.value_or(kPreempted);
  SignalAll(SIGKILL);
}

absl::Status Launcher::OpenLog(Child& child) {
  if (config_.log_dir.empty()) return absl::OkStatus();
  const std::string path =
      absl::StrCat(config_.log_dir, "/rank_", child.rank, ".log");
  child.log_fd = open(path.c_str(),
                      O_WRONLY | O_CREAT | O_CLOEXEC |
                          (attempt_.restart > 0 ? O_APPEND : O_TRUNC),
                      0666);
  if (child.log_fd >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("cannot write '", path, "': ", strerror(errno)));
}

void Launcher::PassOn(int fd, absl::string_view line,
                      const std::string& where) {
  if (WriteFully(fd, line) || !lost_output_.empty()) return;
  lost_output_ =
      absl::StrCat(where, " could not be written: ", strerror(errno));
}

LineRelay::Sink Launcher::SinkFor(const Child& child, int terminal_fd) {
  const int log_fd = child.log_fd;
  const bool shown = log_fd < 0 || child.rank == 0;
  const std::string prefix =
      child.rank == 0 ? "" : absl::StrCat("[rank ", child.rank, "] ");
  const std::string log =
      absl::StrCat(config_.log_dir, "/rank_", child.rank, ".log");
  return [=, this](absl::string_view line) {
    if (log_fd >= 0) PassOn(log_fd, line, log);
    if (!shown) return;
    if (terminal_fd == STDOUT_FILENO)
      PassOn(terminal_fd, absl::StrCat(prefix, line), "the standard output");
    else
      WriteFully(terminal_fd, absl::StrCat(prefix, line));
  };
}

absl::Status Launcher::StartChild(int rank) {
  Child child;
  child.rank = rank;
  RETURN_IF_ERROR(OpenLog(child));
  RankCommand command;
  command.argv = argv_;
  command.inherit_stdout =
      rank == 0 && config_.log_dir.empty() && isatty(STDOUT_FILENO);
  command.environment =
      EnvironmentOf(attempt_, rank, config_.nproc, config_.max_restarts);
  command.environment.push_back("MASTER_ADDR=" + hosted_.address);
  command.environment.push_back(absl::StrCat("MASTER_PORT=", hosted_.port));
  if (!pmix_.empty()) {
    command.environment.insert(command.environment.end(), pmix_[rank].begin(),
                               pmix_[rank].end());
  }
  ASSIGN_OR_RETURN(child.process, StartRank(command, signals_.previous_mask()));
  child.out = std::make_unique<LineRelay>(SinkFor(child, STDOUT_FILENO), 1);
  child.err =
      std::make_unique<LineRelay>(SinkFor(child, STDERR_FILENO), kLastLines);
  children_.push_back(std::move(child));
  return absl::OkStatus();
}

bool Launcher::AnyRunning() const {
  return std::any_of(children_.begin(), children_.end(),
                     [](const Child& child) { return child.running; });
}

// No rank from needed_ranks on is running or has returned 0, so the needed
// ranks can only wait.
bool Launcher::WorkIsLost() const {
  return std::none_of(children_.begin(), children_.end(),
                      [&](const Child& child) {
                        return child.rank >= config_.needed_ranks &&
                               (child.running || child.succeeded);
                      });
}

absl::Duration Launcher::LeftToStopped() const {
  absl::Duration left = absl::InfiniteDuration();
  bool any_ended = false;
  for (const Child& child : children_) {
    any_ended |= !child.running;
    if (!child.running) continue;
    if (!child.stopped.has_value()) return absl::InfiniteDuration();
    left = std::min(left, config_.stop_limit - ElapsedSince(*child.stopped));
  }
  return any_ended ? left : absl::InfiniteDuration();
}

int Launcher::Supervise() {
  while (AnyRunning()) Attend(absl::InfiniteDuration());
  for (Child& child : children_) {
    child.out->Drain(&child.process.stdout_fd);
    child.err->Drain(&child.process.stderr_fd);
    child.out->Finish();
    child.err->Finish();
  }
  return exit_code_.value_or(0);
}

// After a usage error or a divergence a restart would fail in the same way.
std::optional<Attempt> Launcher::Restart() const {
  if (cause_.empty() || told_to_end_ || bad_usage_ ||
      attempt_.restart >= config_.max_restarts) {
    return std::nullopt;
  }
  try {
    if (RestartForbidden(*hosted_.store)) return std::nullopt;
  } catch (const std::exception&) {
    // A lost store says nothing about the cause.
  }
  return Attempt{attempt_.restart + 1, cause_, failed_, started_};
}

void Launcher::Attend(absl::Duration patience) {
  Poll(patience);
  ReadSignals();
  ReapChildren();
  EnforceDeadlines();
}

void Launcher::Poll(absl::Duration patience) {
  std::vector<pollfd> fds = {{signals_.fd(), POLLIN, 0}};
  for (const Child& child : children_) {
    fds.push_back({child.process.stdout_fd, POLLIN, 0});  // -1 is ignored
    fds.push_back({child.process.stderr_fd, POLLIN, 0});
  }
  const absl::Duration left =
      std::min({patience, terminate_.left(), kill_.left(), LeftToStopped()});
  int timeout_ms = -1;
  if (left <= absl::ZeroDuration()) {
    timeout_ms = 0;
  } else if (left != absl::InfiniteDuration()) {
    timeout_ms = static_cast<int>(absl::ToInt64Milliseconds(left) + 1);
  }
  if (poll(fds.data(), fds.size(), timeout_ms) <= 0) return;
  for (size_t i = 0; i < children_.size(); ++i) {
    Child& child = children_[i];
    if (fds[1 + 2 * i].revents != 0) {
      child.out->Drain(&child.process.stdout_fd);
    }
    if (fds[2 + 2 * i].revents != 0) {
      child.err->Drain(&child.process.stderr_fd);
    }
  }
}

void Launcher::ReadSignals() {
  signalfd_siginfo info;
  while (read(signals_.fd(), &info, sizeof(info)) == sizeof(info)) {
    const int signal = static_cast<int>(info.ssi_signo);
    if (signal == SIGCHLD) continue;
    const bool again = std::exchange(told_to_end_, true);
    if (!again && config_.ranks_save_when_preempted && IsPreemption(signal)) {
      Say(absl::StrCat("received signal ", signal, " (", strsignal(signal),
                       "); the ranks finish their step, save a checkpoint and "
                       "exit; a second signal ends them at once"));
      SignalAll(signal);
      continue;
    }
    if (!exit_code_.has_value()) exit_code_ = 128 + signal;
    Say(absl::StrCat("received signal ", signal, " (", strsignal(signal),
                     again ? "); killing the ranks" : "); ending the ranks"));
    SignalAll(again ? SIGKILL : signal);
    kill_ = Deadline(std::min(kill_.left(), config_.grace * 0.8));
  }
}

void Launcher::ReapChildren() {
  for (Child& child : children_) {
    if (!child.running) continue;
    const pid_t pid = child.process.pid;
    NoteStops(child);
    siginfo_t info = {};
    waitid(P_PID, pid, &info, WEXITED | WNOHANG | WNOWAIT);
    if (info.si_pid != pid) continue;
    // Kills processes left behind in the rank's process group, while its id
    // cannot have been reused.
    kill(-pid, SIGKILL);
    int wait_status = 0;
    waitpid(pid, &wait_status, 0);
    child.running = false;
    NoteEnd(child, wait_status);
  }
}

void Launcher::NoteStops(Child& child) {
  siginfo_t info = {};
  const id_t pid = child.process.pid;
  while (waitid(P_PID, pid, &info, WSTOPPED | WCONTINUED | WNOHANG) == 0 &&
         info.si_pid == child.process.pid) {
    child.stopped.reset();
    if (info.si_code != CLD_CONTINUED) child.stopped = SteadyNow();
    try {
      ReportStop(*hosted_.store, child.rank, child.stopped.has_value());
    } catch (const std::exception&) {
      // The other ranks will detect it by themselves.
    }
    info = {};
  }
}

// The rank to blame for the end of `child`, according to the ranks' reports.
std::optional<Blame> Launcher::CauseOf(const Child& child) {
  try {
    std::optional<Blame> cause = RootBlameOf(*hosted_.store, child.rank);
    const int started = static_cast<int>(children_.size());
    if (cause.has_value() && (cause->rank < 0 || cause->rank >= started))
      return std::nullopt;
    return cause;
  } catch (const std::exception&) {
    return std::nullopt;  // no cause beyond `child` is known
  }
}

void Launcher::NoteEnd(Child& child, int wait_status) {
  child.succeeded = wait_status == 0;
  if (child.succeeded || abandoned_) return;
  if (ExitCodeOf(wait_status) == kPreempted) {
    exit_code_ = exit_code_.value_or(kPreempted);
    return;
  }
  const std::string how = DescribeEnd(wait_status);
  if (IsExpendable(child, ExitCodeOf(wait_status))) {
    return Say(absl::StrCat("rank ", child.rank, " (process ",
                            child.process.pid, ") ended with ", how,
                            AnyRunning() ? "; the job continues without it"
                                         : "; the job did not need it"));
  }
  bad_usage_ |= ExitCodeOf(wait_status) == kBadUsage;
  try {
    ReportDeath(*hosted_.store, child.rank, how);
  } catch (const std::exception&) {
    // The survivors will detect it by themselves.
  }
  if (exit_code_.value_or(kPreempted) != kPreempted) return;
  // The signal may arrive before the rank is ready to catch it.
  const bool preempted = told_to_end_ && config_.ranks_save_when_preempted &&
                         WIFSIGNALED(wait_status) &&
                         IsPreemption(WTERMSIG(wait_status));
  exit_code_ = preempted ? kPreempted : ExitCodeOf(wait_status);
  failed_ = absl::Now();
  if (!preempted) ReportFailure(child, how);
  // Time for the other ranks to report their state before they must end.
  terminate_ = Deadline(config_.grace * 0.2);
  kill_ = Deadline(config_.grace * 0.8);
}

// Whether the rank failed because a needed rank is stopped: the other ranks
// will soon fail for the same reason.
bool Launcher::BlamesStoppedNeeded(const Child& child) {
  const std::optional<Blame> cause = CauseOf(child);
  return cause.has_value() && cause->rank < config_.needed_ranks &&
         children_[cause->rank].stopped.has_value();
}

// False if the job is already ending.
bool Launcher::IsExpendable(const Child& child, int exit_code) {
  if (config_.needed_ranks == 0 || child.rank < config_.needed_ranks ||
      exit_code == kBadUsage || told_to_end_ || exit_code_.has_value() ||
      WorkIsLost() || BlamesStoppedNeeded(child)) {
    return false;
  }
  try {
    return DeathsAllowed(*hosted_.store);
  } catch (const std::exception&) {
    return false;
  }
}

void Launcher::ReportFailure(Child& ended, const std::string& how) {
  const auto name = [](const Child& child) {
    return absl::StrCat("rank ", child.rank, " (process ", child.process.pid,
                        ")");
  };
  const std::optional<Blame> cause = CauseOf(ended);
  Child& first = cause.has_value() ? children_[cause->rank] : ended;
  std::string report =
      cause.has_value()
          ? absl::StrCat(name(first), " is the cause: ", name(ended),
                         " ended with ", how, " because ", cause->what)
          : absl::StrCat(name(ended), " ended with ", how);
  cause_ = report;
  if (AnyRunning()) absl::StrAppend(&report, "; ending the other ranks");
  if (first.log_fd >= 0) {
    absl::StrAppend(&report, "; its output is in ", config_.log_dir, "/rank_",
                    first.rank, ".log");
  }
  first.err->Drain(&first.process.stderr_fd);
  if (!first.running) first.err->Finish();
  absl::StrAppend(&report, first.err->last_lines().empty()
                               ? absl::StrCat("; rank ", first.rank,
                                              " wrote nothing to stderr")
                               : absl::StrCat("; the last lines of rank ",
                                              first.rank, " on stderr:"));
  for (const std::string& line : first.err->last_lines()) {
    absl::StrAppend(&report, "\n[launcher]   ", line);
  }
  Say(report);
}

void Launcher::EnforceDeadlines() {
  if (terminate_.passed()) {
    terminate_ = Deadline(absl::InfiniteDuration());
    // On SIGTERM these ranks would first finish their step.
    SignalAll(config_.ranks_save_when_preempted ? SIGKILL : SIGTERM);
  }
  if (kill_.passed()) {
    kill_ = Deadline(absl::InfiniteDuration());
    SignalAll(SIGKILL);
  }
  if (LeftToStopped() > absl::ZeroDuration()) return;
  for (Child& child : children_) {
    if (!child.running || ElapsedSince(*child.stopped) < config_.stop_limit)
      continue;
    child.stopped.reset();
    Say(absl::StrCat("rank ", child.rank, " (process ", child.process.pid,
                     ") is stopped by a signal (SIGSTOP), and all other ranks "
                     "have ended; killing it"));
    kill(-child.process.pid, SIGKILL);
  }
}

void Launcher::SignalAll(int signal) {
  for (const Child& child : children_) {
    if (!child.running) continue;
    kill(-child.process.pid, signal);
    // Otherwise a stopped rank would not receive it.
    kill(-child.process.pid, SIGCONT);
  }
}

// c10's own handler writes to the suppressed log.
class PlainWarnings : public c10::WarningHandler {
 public:
  void process(const c10::Warning& warning) override {
    fprintf(stderr, "warning: %s\n", warning.msg().c_str());
  }
};

}  // namespace

int LaunchRanks(const LaunchConfig& config, int argc, char** argv) {
  IgnoreSigpipe();
  CheckStandardOutputAtExit();
  bool output_lost = false;
  LauncherSignals signals;
  // Called before the store starts threads, which inherit the mask.
  absl::Status started = signals.Block(config.ranks_save_when_preempted);
  for (std::optional<Attempt> attempt = Attempt(); started.ok();) {
    Launcher launcher(config, *attempt, signals, argc, argv);
    started = launcher.Start();
    if (!started.ok()) break;
    const int exit_code = launcher.Supervise();
    if (!launcher.lost_output().empty()) {
      Say(launcher.lost_output());
      output_lost = true;
    }
    attempt = launcher.Restart();
    if (!attempt.has_value())
      return exit_code == 0 && output_lost ? kFailed : exit_code;
    Say(absl::StrCat("restart ", attempt->restart, " of ", config.max_restarts,
                     ": starting ", Counted(config.nproc, "rank"), " again"));
  }
  Say(absl::StrCat("cannot start ", Counted(config.nproc, "rank"), ": ",
                   started.message()));
  return kCannotStart;  // PR_SET_PDEATHSIG kills the started ranks
}

void PrepareRankProcess() {
  IgnoreSigpipe();
  CheckStandardOutputAtExit();
  setvbuf(stdout, nullptr, _IOLBF, 0);
  if (std::getenv("TORCH_CPP_LOG_LEVEL") == nullptr) {
    constexpr int kFatal = 3;
    FLAGS_caffe2_log_level = kFatal;
    c10::WarningUtils::set_warning_handler(new PlainWarnings);  // never freed
  }
  PrepareForNccl();
}

}  // namespace rankwise
