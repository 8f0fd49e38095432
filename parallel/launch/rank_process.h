// One rank as a child process of the launcher, and its output.
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
  std::vector<std::string> argv;  // for /proc/self/exe
  // "NAME=value" entries that extend or override the launcher's own.
  std::vector<std::string> environment;
  bool inherit_stdout = false;  // no pipe, to keep a terminal
};

struct RankProcess {
  pid_t pid = -1;
  int stdout_fd = -1;  // non-blocking ends of its pipes; -1 if none
  int stderr_fd = -1;
};

// Starts this program as a child that is killed when the calling thread ends,
// leads its own process group, reads an empty stdin, and has the signal mask
// `mask`. ResourceExhausted if the kernel refuses.
absl::StatusOr<RankProcess> StartRank(const RankCommand& command,
                                      const sigset_t& mask);

// Formats a wait status: "exit code 3" or "signal 9 (Killed)".
std::string DescribeEnd(int wait_status);

// Returns the exit code of a wait status: 3, or 128 + 9.
int ExitCodeOf(int wait_status);

// Splits a stream into lines and stores the last ones.
class LineRelay {
 public:
  // Receives each line, with its newline.
  using Sink = std::function<void(absl::string_view line)>;

  LineRelay(Sink sink, size_t lines_kept);

  void Write(absl::string_view bytes);
  // Forwards the data that the non-blocking `*fd` has now. At the end of the
  // stream, closes it and sets it to -1. No effect if it is -1.
  void Drain(int* fd);
  // Ends the stream: completes and forwards an unfinished line.
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

// Writes all of `bytes`. Returns false, with errno set, if the rest could not
// be written (a full disk, a closed pipe) and is dropped.
bool WriteFully(int fd, absl::string_view bytes);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_LAUNCH_RANK_PROCESS_H_
