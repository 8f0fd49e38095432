#include "analysis/study/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace rankwise {

absl::StatusOr<FolderLock> FolderLock::Take(const std::string& dir) {
  FolderLock lock(open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (lock.folder_ < 0) return absl::ErrnoToStatus(errno, dir);
  if (flock(lock.folder_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    return absl::FailedPreconditionError(absl::StrCat(
        "--output_dir=", dir,
        ": another study is running in this folder; wait until it has ended, "
        "or choose another folder"));
  }
  return lock;
}

FolderLock::FolderLock(FolderLock&& other)
    : folder_(std::exchange(other.folder_, -1)) {}

FolderLock::~FolderLock() {
  if (folder_ >= 0) close(folder_);
}

}  // namespace rankwise
