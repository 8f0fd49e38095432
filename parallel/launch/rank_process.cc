#include "parallel/launch/rank_process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "third_party/absl/status_macros.h"

extern char** environ;

namespace rankwise {
namespace {

constexpr int kCannotExecute = 127;

// The launcher's environment with the command's entries merged in.
std::vector<std::string> MergedEnvironment(
    const std::vector<std::string>& changes) {
  std::vector<std::string> merged = changes;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const absl::string_view own = *entry;
    const absl::string_view name = own.substr(0, own.find('=') + 1);
    bool replaced = false;
    for (const std::string& change : changes) {
      replaced |= absl::StartsWith(change, name);
    }
    if (!replaced) merged.emplace_back(own);
  }
  return merged;
}

std::vector<char*> Pointers(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (std::string& text : strings) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// The child's parameters, prepared before fork: between fork and exec only
// async-signal-safe calls are allowed, since the launcher has threads.
struct ChildSetup {
  char** argv;
  char** envp;
  int stdin_fd, stdout_fd, stderr_fd;  // -1 if inherited
  pid_t launcher;
  const sigset_t* mask;
};

[[noreturn]] void BecomeRank(const ChildSetup& setup) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != setup.launcher) _exit(kCannotExecute);  // it has died
  if (setup.stdin_fd >= 0) dup2(setup.stdin_fd, STDIN_FILENO);
  if (setup.stdout_fd >= 0) dup2(setup.stdout_fd, STDOUT_FILENO);
  if (setup.stderr_fd >= 0) dup2(setup.stderr_fd, STDERR_FILENO);
  sigprocmask(SIG_SETMASK, setup.mask, nullptr);
  execve("/proc/self/exe", setup.argv, setup.envp);
  _exit(kCannotExecute);
}

// Closes both ends, unless they were moved out.
struct Pipe {
  int read_end = -1, write_end = -1;

  ~Pipe() {
    for (const int fd : {read_end, write_end}) {
      if (fd >= 0) close(fd);
    }
  }
  bool Open() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return false;
    read_end = ends[0];
    write_end = ends[1];
    return fcntl(read_end, F_SETFL, O_NONBLOCK) == 0;
  }
};

absl::Status SystemError(absl::string_view attempted) {
  return absl::ResourceExhaustedError(
      absl::StrCat("starting a rank: ", attempted, ": ", strerror(errno)));
}

// Longer lines are forwarded in pieces.
constexpr size_t kLongestLine = 1 << 20;

}  // namespace

absl::StatusOr<RankProcess> StartRank(const RankCommand& command,
                                      const sigset_t& mask) {
  std::vector<std::string> arguments = command.argv;
  std::vector<std::string> environment = MergedEnvironment(command.environment);
  std::vector<char*> argv = Pointers(arguments);
  std::vector<char*> envp = Pointers(environment);
  Pipe out, err;
  if ((!command.inherit_stdout && !out.Open()) || !err.Open())
    return SystemError("pipe");
  const int empty_stdin = open("/dev/null", O_RDONLY | O_CLOEXEC);
  const ChildSetup setup = {argv.data(),   envp.data(),   empty_stdin,
                            out.write_end, err.write_end, getpid(),
                            &mask};
  const pid_t pid = fork();
  if (pid == 0) BecomeRank(setup);
  const absl::Status forked = pid < 0 ? SystemError("fork") : absl::OkStatus();
  if (empty_stdin >= 0) close(empty_stdin);
  RETURN_IF_ERROR(forked);
  setpgid(pid, pid);  // also here, in case the parent runs first
  return RankProcess{pid, std::exchange(out.read_end, -1),
                     std::exchange(err.read_end, -1)};
}

std::string DescribeEnd(int wait_status) {
  if (WIFSIGNALED(wait_status)) {
    const int signal = WTERMSIG(wait_status);
    return absl::StrCat("signal ", signal, " (", strsignal(signal), ")");
  }
  return absl::StrCat("exit code ", WEXITSTATUS(wait_status));
}

int ExitCodeOf(int wait_status) {
  return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status)
                                  : WEXITSTATUS(wait_status);
}

LineRelay::LineRelay(Sink sink, size_t lines_kept)
    : sink_(std::move(sink)), lines_kept_(lines_kept) {}

void LineRelay::PassOn(absl::string_view line) {
  sink_(line);
  last_lines_.emplace_back(line.substr(0, line.size() - 1));
  if (last_lines_.size() > lines_kept_) last_lines_.pop_front();
}

void LineRelay::Write(absl::string_view bytes) {
  unfinished_.append(bytes.data(), bytes.size());
  size_t begin = 0;
  for (size_t end = unfinished_.find('\n'); end != std::string::npos;
       end = unfinished_.find('\n', begin)) {
    PassOn(absl::string_view(unfinished_).substr(begin, end + 1 - begin));
    begin = end + 1;
  }
  unfinished_.erase(0, begin);
  if (unfinished_.size() > kLongestLine) Finish();
}

void LineRelay::Drain(int* fd) {
  char buffer[1 << 16];
  while (*fd >= 0) {
    const ssize_t count = read(*fd, buffer, sizeof(buffer));
    if (count > 0) {
      Write(absl::string_view(buffer, count));
    } else if (count < 0 && errno == EAGAIN) {
      return;
    } else if (count == 0 || errno != EINTR) {
      close(*fd);
      *fd = -1;
    }
  }
}

void LineRelay::Finish() {
  if (unfinished_.empty()) return;
  unfinished_ += '\n';
  PassOn(unfinished_);
  unfinished_.clear();
}

bool WriteFully(int fd, absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    bytes.remove_prefix(written);
  }
  return true;
}

}  // namespace rankwise
