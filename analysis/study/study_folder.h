// The folder of one study: records of its runs, and their logs.
#ifndef RANKWISE_ANALYSIS_STUDY_STUDY_FOLDER_H_
#define RANKWISE_ANALYSIS_STUDY_STUDY_FOLDER_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "analysis/runs/run_trace.h"

namespace rankwise {

enum class FolderUse {
  kNew,     // for a study that begins
  kResume,  // for the study that is in there
};

// Creates `dir` and `dir`/logs. Refuses a folder that cannot be written to, and
// for a new study one that already holds records, if only of probes
// (fixed_memory.h).
absl::Status PrepareStudyFolder(const std::string& dir,
                                FolderUse use = FolderUse::kNew);

// The runs of every *.jsonl in `dir`, in the order of their names.
absl::StatusOr<std::vector<RunTrace>> LoadStudyFolder(const std::string& dir);

// Notes in `dir`/durations.csv how long a run took, start-up included; what
// cannot be written is left out.
void AddDuration(const std::string& dir, const std::string& run,
                 absl::Duration elapsed);

// Run (PlannedRun::FileStem) -> seconds of all that `dir` notes.
std::map<std::string, double> ReadDurations(const std::string& dir);

// The last `count` lines of a text file; "" where it cannot be read.
std::string LastLines(const std::string& path, int count);

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

#endif  // RANKWISE_ANALYSIS_STUDY_STUDY_FOLDER_H_
