// Passes on what a child process prints, whole line by whole line.
#ifndef RANKWISE_PARALLEL_COMM_LINE_RELAY_H_
#define RANKWISE_PARALLEL_COMM_LINE_RELAY_H_

#include <cstddef>
#include <deque>
#include <functional>
#include <string>

#include "absl/strings/string_view.h"

namespace rankwise {

// Splits a stream into lines and remembers the last of them.
class LineRelay {
 public:
  // Receives each line, with its newline.
  using Sink = std::function<void(absl::string_view line)>;

  LineRelay(Sink sink, size_t lines_kept);

  void Write(absl::string_view bytes);
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

// Writes all of `bytes`; what cannot be written (a closed pipe) is dropped.
void WriteFully(int fd, absl::string_view bytes);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_COMM_LINE_RELAY_H_
