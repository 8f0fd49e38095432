#include "analysis/write_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "absl/strings/str_cat.h"

namespace rankwise {
namespace {

bool WriteAll(int file, absl::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(file, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    text.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

}  // namespace

absl::Status WriteFile(const std::string& path, absl::string_view text) {
  const std::string temporary = absl::StrCat(path, ".", ::getpid(), ".tmp");
  const int file =
      ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  bool written = file >= 0 && WriteAll(file, text) && ::fsync(file) == 0;
  int error = errno;
  if (file >= 0 && ::close(file) != 0 && written) {
    error = errno;
    written = false;
  }
  if (written && std::rename(temporary.c_str(), path.c_str()) == 0) {
    return absl::OkStatus();
  }
  if (written) error = errno;
  if (file >= 0) std::remove(temporary.c_str());
  return absl::ErrnoToStatus(
      error, absl::StrCat("writing ", path,
                          error == ENOENT ? " (its folder must exist)" : ""));
}

}  // namespace rankwise
