// Runs one command to its end, or to a Ctrl-C.

#ifndef ANALYSIS_STUDY_SUBPROCESS_H_
#define ANALYSIS_STUDY_SUBPROCESS_H_

#include <signal.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace rankwise {

// Holds back SIGINT, SIGTERM, SIGHUP and SIGCHLD while it lives, so that
// RunCommand can wait for them. Construct it in main before any thread.
class HeldSignals {
 public:
  HeldSignals();
  ~HeldSignals();
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;

 private:
  sigset_t before_;
};

struct Command {
  std::vector<std::string> arguments;  // the path of the binary first
  std::string output_path;             // takes stdout and stderr
  absl::Duration timeout = absl::InfiniteDuration();
  // Between SIGTERM and SIGKILL when it has to be ended.
  absl::Duration grace = absl::Seconds(8);
};

struct CommandEnd {
  int exit_code = 0;       // where it exited
  int signal = 0;          // that killed it, or 0
  bool timed_out = false;  // it was ended because of the timeout
  int interrupted_by = 0;  // SIGINT, SIGTERM or SIGHUP that we were sent, or 0
  absl::Duration elapsed;

  bool ok() const;
  std::string Describe() const;  // "exited with code 3", "was killed by ..."
};

// Blocks until the command has ended, and with it its process group: what it
// started is killed. A held signal or the timeout ends it early. The command
// also ends when this process dies. Needs a HeldSignals that lives.
absl::StatusOr<CommandEnd> RunCommand(const Command& command);

}  // namespace rankwise

#endif  // ANALYSIS_STUDY_SUBPROCESS_H_
