// The folder of one study: what the study was begun with, the records of its
// runs, and their logs. study.flags, a flagfile, describes the study:
//
//   # schema_version: 1.5
//   # cores: 2
//   ...
//   --trainers=single,ddp
//   --world_sizes=1,2
//   ...
#ifndef RANKWISE_ANALYSIS_STUDY_STUDY_FOLDER_H_
#define RANKWISE_ANALYSIS_STUDY_STUDY_FOLDER_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "analysis/runs/run_trace.h"

namespace rankwise {

struct StudyDescription {
  // Flag -> its value.
  std::map<std::string, std::string> flags;
  // Which code planned the study, and for which machine: schema_version,
  // source_hash, cpu_model, cores, threads_per_rank. Comments of the file.
  std::map<std::string, std::string> origin;
};

// `dir`/study.flags.
std::string StudyFilePath(const std::string& dir);

// A flagfile. Fails, naming the flag, where a value holds a line break.
absl::StatusOr<std::string> FlagfileText(const StudyDescription& description);

// Fails, naming file and line, where it is neither a comment nor --flag=value.
absl::StatusOr<StudyDescription> ReadFlagfile(const std::string& path);

// Fails, naming every difference, where the two describe different studies: the
// runs of one would not be repetitions of the other's. `force` lets another
// version of the code or another machine pass.
absl::Status CheckSameStudy(const StudyDescription& folder,
                            const StudyDescription& now, bool force);

enum class FolderUse {
  kNew,     // for a study that begins
  kResume,  // for the study that is in there
};

// Creates `dir` and `dir`/logs. Refuses one that cannot be written to, and for
// a new study one that holds records, if only of probes (fixed_memory.h).
absl::Status PrepareStudyFolder(const std::string& dir,
                                FolderUse use = FolderUse::kNew);

// The runs of every *.jsonl in `dir`, in the order of their names.
absl::StatusOr<std::vector<RunTrace>> LoadStudyFolder(const std::string& dir);

// Adds to `dir`/durations.csv how long a run took, start-up included; a failure
// to write is ignored.
void AddDuration(const std::string& dir, const std::string& run,
                 absl::Duration elapsed);

// Run (PlannedRun::FileStem) -> seconds of all that `dir` notes.
std::map<std::string, double> ReadDurations(const std::string& dir);

// Sets the program's flags to the described ones. InvalidArgument for a value
// that its flag does not take, and for a flag that there is not, but where its
// value is empty: an earlier version had it and did not use it.
absl::Status SetFlags(const StudyDescription& description);

// The last `count` lines of a text file; "" where it cannot be read.
std::string LastLines(const std::string& path, int count);

// Makes the folder this process's own until the result is destroyed or the
// process ends. FailedPrecondition where another process holds it; NotFound
// without the folder. Keeps nobody out on a file system without locks.
absl::StatusOr<std::shared_ptr<void>> LockFolder(const std::string& dir);

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_STUDY_STUDY_FOLDER_H_
