#include "trainers/checkpoint/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "records/run_origin.h"

namespace rankwise {
namespace {

constexpr size_t kMostBytes = 500;  // bytes of the lock file to show

std::string ThisJob(const std::string& job) {
  return absl::StrCat(job, ", process ", getpid(), " on host ",
                      CollectHostInfo().hostname, ", since ",
                      absl::FormatTime("%Y-%m-%d %H:%M:%S UTC", absl::Now(),
                                       absl::UTCTimeZone()));
}

std::string Holder(int file) {
  char text[kMostBytes];
  const ssize_t bytes = pread(file, text, sizeof(text), 0);
  if (bytes <= 0) return "another job";
  return absl::CHexEscape(absl::StripSuffix(
      absl::string_view(text, static_cast<size_t>(bytes)), "\n"));
}

absl::Status InUse(const std::string& dir, const std::string& path,
                   const std::string& holder) {
  return absl::FailedPreconditionError(
      absl::StrCat("--checkpoint_dir=", dir, ": in use by ", holder,
                   "; two jobs would supersede each other's checkpoints. Use "
                   "another folder, or end that job. If it has ended and its "
                   "host has not released the lock, delete ",
                   path));
}

// Returns whether `path` still names the open `file`: its holder may have
// removed it before it was locked here.
bool StillNames(const std::string& path, int file) {
  struct stat named, opened;
  return stat(path.c_str(), &named) == 0 && fstat(file, &opened) == 0 &&
         named.st_dev == opened.st_dev && named.st_ino == opened.st_ino;
}

void WriteText(int file, const std::string& text) {
  // Best effort: the text only appears in another job's error message.
  if (ftruncate(file, 0) == 0 &&
      pwrite(file, text.data(), text.size(), 0) < 0) {
    return;
  }
}

}  // namespace

absl::StatusOr<FolderLock> FolderLock::Take(const std::string& dir,
                                            const std::string& job) {
  const std::string path = absl::StrCat(dir, "/job.lock");
  while (true) {
    const int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (file < 0) {
      return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", path));
    }
    FolderLock lock(path, file);
    if (flock(file, LOCK_EX | LOCK_NB) == 0) {
      if (!StillNames(path, file)) continue;
      WriteText(file, ThisJob(job) + "\n");
      return lock;
    }
    const int error = errno;
    const std::string holder = Holder(file);
    close(std::exchange(lock.file_, -1));
    if (error == EWOULDBLOCK) return InUse(dir, path, holder);
    if (error == EINTR) continue;
    std::fprintf(stderr,
                 "warning: --checkpoint_dir=%s: cannot be locked against other "
                 "jobs (%s); give each job a folder of its own\n",
                 dir.c_str(), std::strerror(error));
    return lock;
  }
}

FolderLock::FolderLock(FolderLock&& other) noexcept
    : path_(std::move(other.path_)), file_(std::exchange(other.file_, -1)) {}

FolderLock::~FolderLock() {
  if (file_ < 0) return;
  // It is another job's file if this job's was deleted to take over the folder.
  if (StillNames(path_, file_)) unlink(path_.c_str());
  close(file_);
}

}  // namespace rankwise
