// The folder of one study: records of its runs, and their logs.

#ifndef ANALYSIS_STUDY_STUDY_FOLDER_H_
#define ANALYSIS_STUDY_STUDY_FOLDER_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "analysis/run_trace.h"

namespace rankwise {

// Creates `dir` and `dir`/logs. Refuses a folder that already holds records,
// and one that cannot be written to.
absl::Status PrepareStudyFolder(const std::string& dir);

// The runs of every *.jsonl in `dir`, in the order of their names.
absl::StatusOr<std::vector<RunTrace>> LoadStudyFolder(const std::string& dir);

// The last `count` lines of a text file; "" where it cannot be read.
std::string LastLines(const std::string& path, int count);

}  // namespace rankwise

#endif  // ANALYSIS_STUDY_STUDY_FOLDER_H_
