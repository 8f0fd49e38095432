// The folder of a study: its description, the records of its runs, and their
// logs. The flagfile study.flags describes the study:
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
  // flag -> value
  std::map<std::string, std::string> flags;
  // Code that planned the study, and its machine: schema_version, source_hash,
  // cpu_model, cores, threads_per_rank. Comments in the file.
  std::map<std::string, std::string> origin;
};

// Returns `dir`/study.flags.
std::string StudyFilePath(const std::string& dir);

// Returns a flagfile. Fails, naming the flag, if a value contains a line break.
absl::StatusOr<std::string> FlagfileText(const StudyDescription& description);

// Fails, naming file and line, at a line that is neither a comment nor
// --flag=value.
absl::StatusOr<StudyDescription> ReadFlagfile(const std::string& path);

// Fails, naming every difference, if the two describe different studies, whose
// runs would not be repetitions of each other. `force` permits another version
// of the code or another machine.
absl::Status CheckSameStudy(const StudyDescription& folder,
                            const StudyDescription& now, bool force);

enum class FolderUse {
  kNew,     // start a new study
  kResume,  // continue the study in the folder
};

// Creates `dir` and `dir`/logs. Rejects a folder that is not writable and, for
// a new study, one that contains records, including those of probes
// (fixed_memory.h).
absl::Status PrepareStudyFolder(const std::string& dir,
                                FolderUse use = FolderUse::kNew);

// Returns the runs of every *.jsonl in `dir`, in name order.
absl::StatusOr<std::vector<RunTrace>> LoadStudyFolder(const std::string& dir);

// Appends the duration of a run, including start-up, to `dir`/durations.csv;
// ignores write errors.
void AddDuration(const std::string& dir, const std::string& run,
                 absl::Duration elapsed);

// Returns run (PlannedRun::FileStem) -> seconds from `dir`/durations.csv.
std::map<std::string, double> ReadDurations(const std::string& dir);

// Sets the program's flags to the described values. InvalidArgument for an
// invalid value, and for an unknown flag unless its value is empty: an earlier
// version had it, unused.
absl::Status SetFlags(const StudyDescription& description);

// Returns the last `count` lines of a text file; "" if it cannot be read.
std::string LastLines(const std::string& path, int count);

// Locks the folder until the result is destroyed or the process ends.
// FailedPrecondition if another process holds the lock; NotFound without the
// folder. No effect on a file system without locks.
absl::StatusOr<std::shared_ptr<void>> LockFolder(const std::string& dir);

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_STUDY_STUDY_FOLDER_H_
