// Keeps two jobs from saving checkpoints to one folder.
#ifndef RANKWISE_TRAINERS_CHECKPOINT_FOLDER_LOCK_H_
#define RANKWISE_TRAINERS_CHECKPOINT_FOLDER_LOCK_H_

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace rankwise {

// An exclusive lock (flock) on DIR/job.lock, whose text names the job that
// holds it. The kernel releases it when the process ends, however it ends. On
// NFS the server keeps it, so that it also holds between hosts.
class FolderLock {
 public:
  // Locks `dir`, which must exist. `job`: what others are told of this one,
  // besides its process and host: "ddp". FailedPrecondition names the job that
  // holds the lock, and says how to continue. On a file system without locks it
  // succeeds, with a warning on stderr.
  static absl::StatusOr<FolderLock> Take(const std::string& dir,
                                         const std::string& job);

  FolderLock(FolderLock&& other) noexcept;
  FolderLock& operator=(FolderLock&&) = delete;
  // Removes the file.
  ~FolderLock();

 private:
  FolderLock(std::string path, int file)
      : path_(std::move(path)), file_(file) {}

  std::string path_;
  int file_;  // -1: nothing is locked
};

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_CHECKPOINT_FOLDER_LOCK_H_
