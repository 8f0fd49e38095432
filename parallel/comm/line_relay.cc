#include "parallel/comm/line_relay.h"

#include <unistd.h>

#include <cerrno>
#include <utility>

namespace rankwise {
namespace {

// A line longer than this is passed on in pieces.
constexpr size_t kLongestLine = 1 << 20;

}  // namespace

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

void LineRelay::Finish() {
  if (unfinished_.empty()) return;
  unfinished_ += '\n';
  PassOn(unfinished_);
  unfinished_.clear();
}

void WriteFully(int fd, absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    bytes.remove_prefix(written);
  }
}

}  // namespace rankwise
