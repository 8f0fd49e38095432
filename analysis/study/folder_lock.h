// One study at a time in a folder.

#ifndef ANALYSIS_STUDY_FOLDER_LOCK_H_
#define ANALYSIS_STUDY_FOLDER_LOCK_H_

#include <string>

#include "absl/status/statusor.h"

namespace rankwise {

// Held until it is destroyed or the process ends, however it ends.
class FolderLock {
 public:
  // FailedPrecondition where a living process holds it; NotFound without the
  // folder. Where the file system knows no locks, nobody is kept out.
  static absl::StatusOr<FolderLock> Take(const std::string& dir);

  FolderLock(FolderLock&& other);
  FolderLock& operator=(FolderLock&&) = delete;
  ~FolderLock();

 private:
  explicit FolderLock(int folder) : folder_(folder) {}
  int folder_;
};

}  // namespace rankwise

#endif  // ANALYSIS_STUDY_FOLDER_LOCK_H_
