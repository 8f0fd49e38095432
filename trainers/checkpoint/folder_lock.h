// Prevents two jobs from saving checkpoints to one folder.
#ifndef RANKWISE_TRAINERS_CHECKPOINT_FOLDER_LOCK_H_
#define RANKWISE_TRAINERS_CHECKPOINT_FOLDER_LOCK_H_

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace rankwise {

// An exclusive lock (flock) on DIR/job.lock, whose text names the job that
// holds it. The kernel releases it when the process ends, however it ends. On
// NFS the server holds it, so it also works across hosts.
class FolderLock {
 public:
  // Locks `dir`, which must exist. `job`, such as "ddp", identifies this job in
  // other jobs' errors, next to its process and host. FailedPrecondition names
  // the job that holds the lock and how to proceed. On a file system without
  // locks, succeeds with a warning on stderr.
  static absl::StatusOr<FolderLock> Take(const std::string& dir,
                                         const std::string& job);

  FolderLock(FolderLock&& other) noexcept;
  FolderLock& operator=(FolderLock&&) = delete;
  // Removes the lock file.
  ~FolderLock();

 private:
  FolderLock(std::string path, int file)
      : path_(std::move(path)), file_(file) {}

  std::string path_;
  int file_;  // -1 if nothing is locked
};

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_CHECKPOINT_FOLDER_LOCK_H_
