// What a study was begun with: study.flags in its folder, a flagfile.
//
//   # schema_version: 1.5
//   # cores: 2
//   ...
//   --trainers=single,ddp
//   --world_sizes=1,2
//   ...
#ifndef RANKWISE_ANALYSIS_STUDY_STUDY_DESCRIPTION_H_
#define RANKWISE_ANALYSIS_STUDY_STUDY_DESCRIPTION_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

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

// As the text of a flagfile. Fails, naming the flag, where a value holds a line
// break, which a flagfile cannot hold.
absl::StatusOr<std::string> FlagfileText(const StudyDescription& description);

// Fails, naming file and line, where a line is neither a comment nor a flag
// with its value.
absl::StatusOr<StudyDescription> ReadFlagfile(const std::string& path);

// What `now` has otherwise than `before`, "--repetitions is 3, and was 5", in
// the order of the flags' names.
std::vector<std::string> Differences(
    const std::map<std::string, std::string>& before,
    const std::map<std::string, std::string>& now);

// Fails, naming every difference, where the study that `folder` describes is
// not the one that `now` does: its runs would not be repetitions of these.
// `force` lets another version of the code or another machine pass.
absl::Status CheckSameStudy(const StudyDescription& folder,
                            const StudyDescription& now, bool force);

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_STUDY_STUDY_DESCRIPTION_H_
