#include "parallel/trace/replace_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <fstream>

#include "absl/strings/str_cat.h"

namespace rankwise {
namespace {

bool Sync(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  const bool synced = ::fsync(file) == 0;
  const int error = errno;
  ::close(file);
  errno = error;
  return synced;
}

}  // namespace

absl::Status ReplaceFile(const std::string& path,
                         const std::function<void(std::ostream&)>& write) {
  const std::string temporary = absl::StrCat(path, ".", ::getpid(), ".tmp");
  errno = 0;
  std::ofstream out(temporary, std::ios::binary | std::ios::trunc);
  if (out) {
    write(out);
    out.close();
  }
  if (out && Sync(temporary) &&
      std::rename(temporary.c_str(), path.c_str()) == 0)
    return absl::OkStatus();
  const int error = errno == 0 ? EIO : errno;
  std::remove(temporary.c_str());
  return absl::ErrnoToStatus(
      error, absl::StrCat("writing ", path,
                          error == ENOENT ? " (its folder must exist)" : ""));
}

}  // namespace rankwise
