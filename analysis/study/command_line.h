// The study's command line over what files say of the study.

#ifndef ANALYSIS_STUDY_COMMAND_LINE_H_
#define ANALYSIS_STUDY_COMMAND_LINE_H_

#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "analysis/study/config_file.h"

namespace rankwise {

struct CommandLine {
  std::vector<char*> positional;  // the binary's name first
  // study.json of --output_dir under --resume, and of --from where it has one.
  std::optional<ConfigFile> folder;
};

// Sets all flags: those given in argv, else what --config says, else what the
// folder's study.json says, else their defaults. Exits as ParseFlags does
// where argv is wrong; fails where a file is.
absl::StatusOr<CommandLine> ParseStudyCommandLine(int argc, char** argv);

}  // namespace rankwise

#endif  // ANALYSIS_STUDY_COMMAND_LINE_H_
