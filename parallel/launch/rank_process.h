// One rank as a child process of the launcher, and what it prints.
#ifndef RANKWISE_PARALLEL_LAUNCH_RANK_PROCESS_H_
#define RANKWISE_PARALLEL_LAUNCH_RANK_PROCESS_H_

#include <signal.h>
#include <sys/types.h>

#include <cstddef>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace rankwise {

// How to start a rank.
struct RankCommand {
  std::vector<std::string> argv;  // of /proc/self/exe
  // "NAME=value" entries that are added to, or replace, the launcher's own.
  std::vector<std::string> environment;
  bool inherit_stdout = false;  // true: no pipe, e.g. to keep a terminal
};

struct RankProcess {
  pid_t pid = -1;
  int stdout_fd = -1;  // non-blocking ends of its pipes; -1: none
  int stderr_fd = -1;
};

// Starts this very program as a child that is killed when the calling thread
// ends, leads a process group of its own, reads an empty stdin, and has the
// signal mask `mask`.
absl::StatusOr<RankProcess> StartRank(const RankCommand& command,
                                      const sigset_t& mask);

// "exit code 3" or "signal 9 (Killed)", from a wait status.
std::string DescribeEnd(int wait_status);

// 3, or 128 + 9.
int ExitCodeOf(int wait_status);

// Splits a stream into lines and remembers the last of them.
class LineRelay {
 public:
  // Receives each line, with its newline.
  using Sink = std::function<void(absl::string_view line)>;

  LineRelay(Sink sink, size_t lines_kept);

  void Write(absl::string_view bytes);
  // Passes on what can be read from the non-blocking `*fd` now. At the end of
  // the stream, closes it and sets it to -1. Does nothing if it is -1.
  void Drain(int* fd);
  // The end of the stream: passes on an unfinished line, completed.
  void Finish();
  // The last lines, oldest first, without newlines.
  const std::deque<std::string>& last_lines() const { return last_lines_; }

 private:
  void PassOn(absl::string_view line_with_newline);

  const Sink sink_;
  const size_t lines_kept_;
  std::string unfinished_;
  std::deque<std::string> last_lines_;
};

// Writes all of `bytes`. False, with errno set: the rest could not be written
// (a full disk, a closed pipe) and is dropped.
bool WriteFully(int fd, absl::string_view bytes);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_LAUNCH_RANK_PROCESS_H_
