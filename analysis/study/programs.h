// The programs that a study runs: where they are, and one of them run to its
// end or to a Ctrl-C.
#ifndef RANKWISE_ANALYSIS_STUDY_PROGRAMS_H_
#define RANKWISE_ANALYSIS_STUDY_PROGRAMS_H_

#include <signal.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace rankwise {

struct Command {
  std::vector<std::string> arguments;  // the path of the binary first
  std::string output_path;             // takes stdout and stderr
  absl::Duration timeout = absl::InfiniteDuration();
  // Between SIGTERM and SIGKILL when it has to be ended.
  absl::Duration grace = absl::Seconds(8);
};

// Holds back SIGINT, SIGTERM, SIGHUP and SIGCHLD while it lives, so that
// RunCommand can wait for them. Construct it in main before any thread. The
// first three stay ignored if they are: nohup ignores SIGHUP, and a shell
// script SIGINT for what it starts with "&".
class HeldSignals {
 public:
  HeldSignals();
  ~HeldSignals();
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;

  // The SIGINT, SIGTERM or SIGHUP that ended a command, and is to end the
  // study; 0 without one.
  int interrupted_by() const { return interrupted_by_; }

 private:
  friend absl::Status RunCommand(const Command& command, HeldSignals& signals);

  sigset_t before_;
  int interrupted_by_ = 0;
};

// Blocks until the command has ended, and with it its process group: what it
// started is killed. It also ends when this process dies. Cancelled where one
// of `signals` ended it early, DeadlineExceeded where the timeout did, Unknown
// where it failed: "exited with code 3", "was killed by signal 9 ...".
absl::Status RunCommand(const Command& command, HeldSignals& signals);

// The folder with the trainers' binaries, found from the path of the
// study's own binary: in its runfiles (`bazel run`, or started by hand from
// bazel-bin), else next to it in the tree of build outputs. Absolute.
absl::StatusOr<std::string> FindTrainerDir(const std::string& own_path);

// The binary of a trainer, TRAINER_DIR/PROGRAM, or of comm_bench: there, or in
// the folder comm_bench next to TRAINER_DIR. NotFound unless it is an
// executable file, with what to do about it.
absl::StatusOr<std::string> ProgramPath(const std::string& trainer_dir,
                                        const std::string& program);

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_STUDY_PROGRAMS_H_
