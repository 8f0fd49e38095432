// The programs that a study runs: where they are, and one of them run to its
// end or to a Ctrl-C.
#ifndef RANKWISE_ANALYSIS_STUDY_PROGRAMS_H_
#define RANKWISE_ANALYSIS_STUDY_PROGRAMS_H_

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

// The folder with the trainers' binaries, found from the path of the
// study's own binary: in its runfiles (`bazel run`, or started by hand from
// bazel-bin), else next to it in the tree of build outputs. Absolute.
absl::StatusOr<std::string> FindTrainerDir(const std::string& own_path);

// dir/trainer; fails unless it is an executable file.
absl::StatusOr<std::string> TrainerPath(const std::string& dir,
                                        const std::string& trainer);

// The communication benchmark near the trainers: in their folder, or in the
// folder comm_bench next to theirs. The error says how to go without.
absl::StatusOr<std::string> CommBenchPath(const std::string& trainer_dir);

// plotly.min.js in the runfiles of the study's own binary. The error says how
// to go without.
absl::StatusOr<std::string> FindPlotly(const std::string& own_path);

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_STUDY_PROGRAMS_H_
