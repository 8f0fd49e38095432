// The study's command line.

#ifndef ANALYSIS_STUDY_STUDY_FLAGS_H_
#define ANALYSIS_STUDY_STUDY_FLAGS_H_

#include <cstdint>
#include <string>

#include "absl/flags/declare.h"
#include "absl/status/statusor.h"
#include "analysis/study/study_config.h"
#include "analysis/study/study_runner.h"
#include "records/host.h"

ABSL_DECLARE_FLAG(std::string, from);
ABSL_DECLARE_FLAG(int64_t, warmup_steps);
ABSL_DECLARE_FLAG(bool, dry_run);

namespace rankwise {

// `bazel run` starts in the runfiles; users mean the folder they typed in.
std::string UserPath(const std::string& path);

// Each fails with a message that names the flag to change.
absl::StatusOr<StudyConfig> ConfigFromFlags(const HostInfo& host);
absl::StatusOr<StudyRunnerConfig> RunnerFromFlags(const StudyConfig& study);

}  // namespace rankwise

#endif  // ANALYSIS_STUDY_STUDY_FLAGS_H_
