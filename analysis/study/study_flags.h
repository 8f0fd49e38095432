// The study's command line.
#ifndef RANKWISE_ANALYSIS_STUDY_STUDY_FLAGS_H_
#define RANKWISE_ANALYSIS_STUDY_STUDY_FLAGS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/flags/declare.h"
#include "absl/status/statusor.h"
#include "analysis/study/study_config.h"
#include "analysis/study/study_description.h"
#include "analysis/study/study_run.h"
#include "records/run_origin.h"

ABSL_DECLARE_FLAG(std::string, from);
ABSL_DECLARE_FLAG(std::string, output_dir);
ABSL_DECLARE_FLAG(int64_t, warmup_steps);
ABSL_DECLARE_FLAG(bool, oversubscribe);
ABSL_DECLARE_FLAG(bool, resume);
ABSL_DECLARE_FLAG(bool, force);
ABSL_DECLARE_FLAG(bool, report);
ABSL_DECLARE_FLAG(bool, dry_run);
ABSL_DECLARE_FLAG(bool, verbose);

namespace rankwise {

struct CommandLine {
  std::vector<char*> positional;  // the binary's name first
  // study.flags of --output_dir under --resume, and of --from where it has one.
  std::optional<StudyDescription> folder;
};

// Sets all flags: those given in argv, else what the folder's study.flags says,
// else their defaults. Exits as ParseFlags does where argv is wrong; fails
// where the file is.
absl::StatusOr<CommandLine> ParseStudyCommandLine(int argc, char** argv);

// Each fails with a message that names the flag to change.
absl::StatusOr<StudyConfig> ConfigFromFlags(const HostInfo& host);
absl::StatusOr<StudyRunnerConfig> RunnerFromFlags(const StudyConfig& study);

// The plotly.min.js of the report.
absl::StatusOr<std::string> PlotlyFromFlags();

// What study.flags says of a study that these flags describe.
StudyDescription DescribeStudy(const StudyConfig& study, const HostInfo& host);

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_STUDY_STUDY_FLAGS_H_
