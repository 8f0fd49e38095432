#include "parallel/comm/test_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "parallel/clock/steady_time.h"

namespace rankwise {
namespace {

constexpr absl::Duration kPollInterval = absl::Milliseconds(20);

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

void Redirect(const std::string& path, int fd) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
  dup2(file, fd);
  close(file);
}

bool IsRunning(pid_t pid) {
  const std::string stat = ReadFile(absl::StrCat("/proc/", pid, "/stat"));
  return !stat.empty() && !absl::StrContains(stat, ") Z ");
}

// Waits until the file has `count` lines that contain `text`.
bool AwaitLines(const std::string& path, const std::string& text, int count,
                absl::Duration patience) {
  const Deadline deadline(patience);
  while (!deadline.passed()) {
    int found = 0;
    for (absl::string_view line : absl::StrSplit(ReadFile(path), '\n')) {
      found += absl::StrContains(line, text);
    }
    if (found >= count) return true;
    absl::SleepFor(kPollInterval);
  }
  return false;
}

}  // namespace

TestProcess::TestProcess(std::vector<std::string> argv,
                         std::vector<std::string> environment)
    : prefix_(TemporaryPath("process")) {
  std::vector<char*> pointers;
  for (std::string& argument : argv) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  pid_ = fork();  // the test has no other thread that could hold a lock
  if (pid_ != 0) return;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  Redirect(prefix_ + ".out", STDOUT_FILENO);
  Redirect(prefix_ + ".err", STDERR_FILENO);
  for (std::string& entry : environment) putenv(entry.data());
  execv(pointers[0], pointers.data());
  _exit(127);
}

TestProcess::~TestProcess() {
  if (result_ >= 0) return;
  Signal(SIGKILL);
  waitpid(pid_, nullptr, 0);
}

void TestProcess::Signal(int signal) const { kill(pid_, signal); }

int TestProcess::Wait(absl::Duration patience) {
  const Deadline deadline(patience);
  int status = 0;
  while (waitpid(pid_, &status, WNOHANG) == 0) {
    if (deadline.passed()) return -1;
    absl::SleepFor(kPollInterval);
  }
  result_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return result_;
}

std::string TestProcess::Stdout() const { return ReadFile(prefix_ + ".out"); }
std::string TestProcess::Stderr() const { return ReadFile(prefix_ + ".err"); }

bool TestProcess::AwaitOutput(const std::string& text, int count,
                              absl::Duration patience) const {
  return AwaitLines(prefix_ + ".out", text, count, patience);
}

bool TestProcess::AwaitError(const std::string& text, int count,
                             absl::Duration patience) const {
  return AwaitLines(prefix_ + ".err", text, count, patience);
}

std::vector<pid_t> PidsIn(const std::string& output) {
  std::vector<pid_t> pids;
  for (absl::string_view line : absl::StrSplit(output, '\n')) {
    const size_t at = line.find("pid ");
    pid_t pid = 0;
    if (at != absl::string_view::npos &&
        absl::SimpleAtoi(line.substr(at + 4), &pid)) {
      pids.push_back(pid);
    }
  }
  return pids;
}

bool AllGone(const std::vector<pid_t>& pids, absl::Duration patience) {
  const Deadline deadline(patience);
  for (const pid_t pid : pids) {
    while (IsRunning(pid)) {
      if (deadline.passed()) return false;
      absl::SleepFor(kPollInterval);
    }
  }
  return true;
}

std::string Runfile(const std::string& path) {
  const char* root = std::getenv("TEST_SRCDIR");
  const char* workspace = std::getenv("TEST_WORKSPACE");
  if (root == nullptr || workspace == nullptr) return path;
  return absl::StrCat(root, "/", workspace, "/", path);
}

std::string TemporaryPath(const std::string& name) {
  static std::atomic<int> count{0};
  const char* folder = std::getenv("TEST_TMPDIR");
  return absl::StrCat(folder == nullptr ? "/tmp" : folder, "/", getpid(), "_",
                      name, "_", ++count);
}

}  // namespace rankwise
