#include "analysis/study/programs.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "third_party/absl/status_macros.h"

namespace rankwise {
namespace {

namespace fs = std::filesystem;

bool IsExecutable(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error) && access(path.c_str(), X_OK) == 0;
}

constexpr int kInterrupts[] = {SIGINT, SIGTERM, SIGHUP};
constexpr int kCannotExecute = 127;

bool IsIgnored(int signal) {
  struct sigaction now = {};
  return sigaction(signal, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
}

sigset_t SetOfHeldSignals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGCHLD);
  // A blocked signal is queued even if it is ignored.
  for (int signal : kInterrupts) {
    if (!IsIgnored(signal)) sigaddset(&set, signal);
  }
  return set;
}

// Runs in the child between fork and exec: only async-signal-safe calls.
[[noreturn]] void Execute(char* const* arguments, int output, int input,
                          pid_t parent) {
  setpgid(0, 0);  // Ctrl-C reaches only this process, which forwards it
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(kCannotExecute);
  dup2(input, STDIN_FILENO);
  dup2(output, STDOUT_FILENO);
  dup2(output, STDERR_FILENO);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  // ignored by this process, but not by its programs
  ::signal(SIGPIPE, SIG_DFL);
  execv(arguments[0], arguments);
  const char* reason = strerror(errno);
  for (const char* part :
       {"cannot execute ", (const char*)arguments[0], ": ", reason, "\n"}) {
    if (write(STDERR_FILENO, part, strlen(part)) < 0) break;
  }
  _exit(kCannotExecute);
}

absl::StatusOr<pid_t> Start(const Command& command) {
  std::vector<char*> arguments;
  for (const std::string& argument : command.arguments) {
    arguments.push_back(const_cast<char*>(argument.c_str()));
  }
  arguments.push_back(nullptr);
  const int output = open(command.output_path.c_str(),
                          O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (output < 0) {
    return absl::ErrnoToStatus(
        errno, absl::StrCat("opening the log ", command.output_path));
  }
  const int input = open("/dev/null", O_RDONLY | O_CLOEXEC);
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child == 0) Execute(arguments.data(), output, input, parent);
  const int error = errno;
  close(output);
  if (input >= 0) close(input);
  if (child < 0) {
    return absl::ErrnoToStatus(error,
                               absl::StrCat("starting ", command.arguments[0]));
  }
  setpgid(child, child);  // also here, as either process may be first
  return child;
}

// Waits for the child for up to `patience`, or until an interrupt, stored in
// *interrupted_by; if that is nullptr, ignores interrupts. Returns false if the
// child is still running.
bool WaitFor(pid_t child, absl::Duration patience, int* status,
             int* interrupted_by) {
  using Clock = std::chrono::steady_clock;  // unaffected by clock changes
  const Clock::time_point start = Clock::now();
  const sigset_t set = SetOfHeldSignals();
  while (waitpid(child, status, WNOHANG) != child) {
    const absl::Duration left =
        patience - absl::FromChrono(Clock::now() - start);
    if (left <= absl::ZeroDuration()) return false;
    const timespec wait = absl::ToTimespec(std::min(left, absl::Hours(1)));
    const int signal = sigtimedwait(&set, nullptr, &wait);
    if (interrupted_by == nullptr) continue;
    if (!absl::c_linear_search(kInterrupts, signal)) continue;
    *interrupted_by = signal;
    return false;
  }
  return true;
}

}  // namespace

absl::StatusOr<std::string> FindTrainerDir(const std::string& own_path) {
  const fs::path own = fs::absolute(own_path);
  std::vector<fs::path> candidates;
  std::error_code error;
  // RUNFILES/WORKSPACE/trainers, for any name of the workspace.
  for (const auto& workspace :
       fs::directory_iterator(own.string() + ".runfiles", error)) {
    candidates.push_back(workspace.path() / "trainers");
  }
  // The binary is OUTPUTS/analysis/study/study, or its link in the runfiles.
  candidates.push_back(own.parent_path().parent_path().parent_path() /
                       "trainers");
  for (const fs::path& folder : candidates) {
    if (fs::exists(folder / "ddp", error)) return folder.string();
  }
  return absl::NotFoundError(absl::StrCat(
      "the trainers were not found near ", own.string(),
      ": start the study by `./bazelw run //:study`, or pass --trainer_dir"));
}

absl::StatusOr<std::string> ProgramPath(const std::string& trainer_dir,
                                        const std::string& program) {
  const fs::path dir = fs::path(trainer_dir).lexically_normal();
  const fs::path path = dir / program;
  if (IsExecutable(path)) return path.string();
  if (program != "comm_bench") {
    return absl::NotFoundError(
        absl::StrCat("the trainer ", path.string(),
                     " is not an executable file; --trainer_dir names its "
                     "folder"));
  }
  const fs::path next_to_dir = dir.parent_path() / program / program;
  if (IsExecutable(next_to_dir)) return next_to_dir.string();
  return absl::NotFoundError(absl::StrCat(
      "comm_bench, which measures communication, is neither in ", dir.string(),
      " nor next to it: build //comm_bench, or go without by "
      "--comm_bench=false"));
}

HeldSignals::HeldSignals() {
  // An inherited SIG_IGN would make the kernel reap commands, and waitpid would
  // never report that they ended.
  ::signal(SIGCHLD, SIG_DFL);
  const sigset_t set = SetOfHeldSignals();
  sigprocmask(SIG_BLOCK, &set, &before_);
}

HeldSignals::~HeldSignals() { sigprocmask(SIG_SETMASK, &before_, nullptr); }

absl::Status RunCommand(const Command& command, HeldSignals& signals) {
  ASSIGN_OR_RETURN(const pid_t child, Start(command));
  int status = 0;
  const bool ended =
      WaitFor(child, command.timeout, &status, &signals.interrupted_by_);
  if (!ended) {
    kill(-child, SIGTERM);
    if (!WaitFor(child, command.grace, &status, nullptr)) {
      kill(-child, SIGKILL);
      waitpid(child, &status, 0);
    }
  }
  kill(-child, SIGKILL);  // remaining processes of its group
  if (signals.interrupted_by() != 0) {
    return absl::CancelledError("was interrupted");
  }
  if (!ended) {
    return absl::DeadlineExceededError(absl::StrCat(
        "did not end within ", absl::FormatDuration(command.timeout),
        " and was ended (--run_timeout)"));
  }
  if (WIFSIGNALED(status)) {
    return absl::UnknownError(absl::StrCat("was killed by signal ",
                                           WTERMSIG(status), " (",
                                           strsignal(WTERMSIG(status)), ")"));
  }
  if (WEXITSTATUS(status) == 0) return absl::OkStatus();
  return absl::UnknownError(
      absl::StrCat("exited with code ", WEXITSTATUS(status)));
}

}  // namespace rankwise
