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

// RUNFILES/WORKSPACE/trainers for every workspace: its name is not ours to
// know.
std::vector<fs::path> InRunfiles(const fs::path& runfiles) {
  std::vector<fs::path> folders;
  std::error_code error;
  for (const auto& workspace : fs::directory_iterator(runfiles, error)) {
    folders.push_back(workspace.path() / "trainers");
  }
  return folders;
}

bool IsExecutable(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error) && access(path.c_str(), X_OK) == 0;
}

constexpr int kInterrupts[] = {SIGINT, SIGTERM, SIGHUP};
constexpr int kCannotExecute = 127;

sigset_t SetOfHeldSignals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGCHLD);
  for (int signal : kInterrupts) sigaddset(&set, signal);
  return set;
}

// In the child, between fork and exec: only async-signal-safe calls.
[[noreturn]] void Execute(char* const* arguments, int output, int input,
                          pid_t parent) {
  setpgid(0, 0);  // Ctrl-C reaches us alone; we pass it on
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(kCannotExecute);
  dup2(input, STDIN_FILENO);
  dup2(output, STDOUT_FILENO);
  dup2(output, STDERR_FILENO);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
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
  setpgid(child, child);  // here too: whoever comes first
  return child;
}

// By a clock that nobody sets.
using Clock = std::chrono::steady_clock;
absl::Duration ElapsedSince(Clock::time_point start) {
  return absl::FromChrono(Clock::now() - start);
}

// The next held signal, or 0 when `patience` since `start` is over.
int NextSignal(Clock::time_point start, absl::Duration patience) {
  const sigset_t set = SetOfHeldSignals();
  while (true) {
    const absl::Duration left = patience - ElapsedSince(start);
    if (left <= absl::ZeroDuration()) return 0;
    const timespec wait = absl::ToTimespec(std::min(left, absl::Hours(1)));
    const int signal = sigtimedwait(&set, nullptr, &wait);
    if (signal > 0) return signal;
  }
}

// Waits for the child for up to `patience`. False: it still runs.
bool WaitFor(pid_t child, absl::Duration patience, int* status,
             int* interrupted_by) {
  const Clock::time_point start = Clock::now();
  while (waitpid(child, status, WNOHANG) != child) {
    const int signal = NextSignal(start, patience);
    if (signal == 0) return false;
    if (!absl::c_linear_search(kInterrupts, signal)) continue;
    if (interrupted_by != nullptr) {
      *interrupted_by = signal;
      return false;
    }
  }
  return true;
}

}  // namespace

absl::StatusOr<std::string> FindTrainerDir(const std::string& own_path) {
  const fs::path own = fs::absolute(own_path);
  std::vector<fs::path> candidates = InRunfiles(own.string() + ".runfiles");
  // The binary is OUTPUTS/analysis/study/study, or its link in the runfiles.
  candidates.push_back(own.parent_path().parent_path().parent_path() /
                       "trainers");
  for (const fs::path& folder : candidates) {
    std::error_code error;
    if (fs::exists(folder / "ddp", error)) return folder.string();
  }
  return absl::NotFoundError(absl::StrCat(
      "the trainers were not found near ", own.string(),
      ": start the study by `./bazelw run //:study`, or pass --trainer_dir"));
}

absl::StatusOr<std::string> TrainerPath(const std::string& dir,
                                        const std::string& trainer) {
  const fs::path path = fs::path(dir) / trainer;
  if (IsExecutable(path)) return path.string();
  return absl::NotFoundError(
      absl::StrCat("the trainer ", path.string(),
                   " is not an executable file; --trainer_dir names its "
                   "folder"));
}

absl::StatusOr<std::string> CommBenchPath(const std::string& trainer_dir) {
  const fs::path dir = fs::path(trainer_dir).lexically_normal();
  for (const fs::path& path :
       {dir / "comm_bench", dir.parent_path() / "comm_bench" / "comm_bench"}) {
    if (IsExecutable(path)) return path.string();
  }
  return absl::NotFoundError(absl::StrCat(
      "comm_bench, which measures communication, is neither in ", dir.string(),
      " nor next to it: build //comm_bench, or go without by "
      "--comm_bench=false"));
}

absl::StatusOr<std::string> FindPlotly(const std::string& own_path) {
  const fs::path path = own_path + ".runfiles/plotly/plotly.min.js";
  std::error_code error;
  if (fs::is_regular_file(path, error)) return path.string();
  return absl::NotFoundError(absl::StrCat(
      path.string(),
      " is not there: start the study by `./bazelw run //:study`, pass "
      "--plotly_js, or go without a report by --report=false"));
}

HeldSignals::HeldSignals() {
  const sigset_t set = SetOfHeldSignals();
  sigprocmask(SIG_BLOCK, &set, &before_);
}

HeldSignals::~HeldSignals() { sigprocmask(SIG_SETMASK, &before_, nullptr); }

bool CommandEnd::ok() const {
  return exit_code == 0 && signal == 0 && !timed_out && interrupted_by == 0;
}

std::string CommandEnd::Describe() const {
  if (interrupted_by != 0) return "was interrupted";
  if (timed_out) {
    return absl::StrCat("did not end within ", absl::FormatDuration(elapsed),
                        " and was ended (--run_timeout)");
  }
  if (signal != 0) {
    return absl::StrCat("was killed by signal ", signal, " (",
                        strsignal(signal), ")");
  }
  return absl::StrCat("exited with code ", exit_code);
}

absl::StatusOr<CommandEnd> RunCommand(const Command& command) {
  const Clock::time_point start = Clock::now();
  ASSIGN_OR_RETURN(const pid_t child, Start(command));
  CommandEnd end;
  int status = 0;
  if (!WaitFor(child, command.timeout, &status, &end.interrupted_by)) {
    end.timed_out = end.interrupted_by == 0;
    kill(-child, SIGTERM);
    if (!WaitFor(child, command.grace, &status, nullptr)) {
      kill(-child, SIGKILL);
      waitpid(child, &status, 0);
    }
  }
  kill(-child, SIGKILL);  // what the command may have left in its group
  end.elapsed = ElapsedSince(start);
  if (WIFSIGNALED(status)) end.signal = WTERMSIG(status);
  if (WIFEXITED(status)) end.exit_code = WEXITSTATUS(status);
  return end;
}

}  // namespace rankwise
