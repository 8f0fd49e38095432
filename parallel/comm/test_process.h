// Child processes of tests, killed at the latest with the test.
#ifndef RANKWISE_PARALLEL_COMM_TEST_PROCESS_H_
#define RANKWISE_PARALLEL_COMM_TEST_PROCESS_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/time/time.h"

namespace rankwise {

// A program whose stdout and stderr go to files in TEST_TMPDIR. It is killed
// with SIGKILL when the TestProcess is destroyed or the test ends.
class TestProcess {
 public:
  // `argv[0]` is the program's path; `environment` adds NAME=value entries.
  explicit TestProcess(std::vector<std::string> argv,
                       std::vector<std::string> environment = {});
  ~TestProcess();
  TestProcess(const TestProcess&) = delete;
  TestProcess& operator=(const TestProcess&) = delete;

  void Signal(int signal) const;
  // Returns the exit code, 128 + signal, or -1 if it still runs after
  // `patience`.
  int Wait(absl::Duration patience = absl::Seconds(50));
  // The output so far.
  std::string Stdout() const;
  std::string Stderr() const;
  // Blocks until stdout has `count` lines that contain `text`; false after
  // `patience`.
  bool AwaitOutput(const std::string& text, int count,
                   absl::Duration patience = absl::Seconds(50)) const;
  // The same for stderr.
  bool AwaitError(const std::string& text, int count,
                  absl::Duration patience = absl::Seconds(50)) const;
  pid_t pid() const { return pid_; }

 private:
  std::string prefix_;  // of the paths of the output files
  pid_t pid_ = -1;
  int result_ = -1;
};

// The numbers in stdout's lines "pid N".
std::vector<pid_t> PidsIn(const std::string& output);

// Blocks until none of `pids` runs; false after `patience`.
bool AllGone(const std::vector<pid_t>& pids,
             absl::Duration patience = absl::Seconds(10));

// The path of a file among the test's runfiles, relative to the workspace.
std::string Runfile(const std::string& path);

// A fresh path inside TEST_TMPDIR.
std::string TemporaryPath(const std::string& name);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_COMM_TEST_PROCESS_H_
