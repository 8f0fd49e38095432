// The programs run by a study: finding them, and running one until it ends or
// is interrupted.
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
  std::vector<std::string> arguments;  // starts with the path of the binary
  std::string output_path;             // file for stdout and stderr
  absl::Duration timeout = absl::InfiniteDuration();
  // time between SIGTERM and SIGKILL
  absl::Duration grace = absl::Seconds(8);
};

// Blocks SIGINT, SIGTERM, SIGHUP and SIGCHLD during its lifetime, so that
// RunCommand can wait for them. Construct it in main before any thread. The
// first three stay ignored if they are: nohup ignores SIGHUP, and a shell
// script ignores SIGINT in commands started with "&".
class HeldSignals {
 public:
  HeldSignals();
  ~HeldSignals();
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;

  // Returns the SIGINT, SIGTERM or SIGHUP that ended a command and must end the
  // study; 0 without one.
  int interrupted_by() const { return interrupted_by_; }

 private:
  friend absl::Status RunCommand(const Command& command, HeldSignals& signals);

  sigset_t before_;
  int interrupted_by_ = 0;
};

// Blocks until the command has ended, and kills the remaining processes of its
// process group. The command also ends when this process dies. Cancelled if one
// of `signals` interrupted it, DeadlineExceeded after the timeout, Unknown if
// it failed: "exited with code 3", "was killed by signal 9 ...".
absl::Status RunCommand(const Command& command, HeldSignals& signals);

// Returns the absolute path of the folder with the trainers' binaries, given
// the path of the study's binary: in its runfiles (`bazel run`, or started by
// hand from bazel-bin), else next to it in the tree of build outputs.
absl::StatusOr<std::string> FindTrainerDir(const std::string& own_path);

// Returns the binary of a trainer, TRAINER_DIR/PROGRAM, or of comm_bench:
// there, or in the folder comm_bench next to TRAINER_DIR. NotFound, with a
// remedy, unless it is an executable file.
absl::StatusOr<std::string> ProgramPath(const std::string& trainer_dir,
                                        const std::string& program);

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_STUDY_PROGRAMS_H_
