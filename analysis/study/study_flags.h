// The study's command line.

#ifndef ANALYSIS_STUDY_STUDY_FLAGS_H_
#define ANALYSIS_STUDY_STUDY_FLAGS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/flags/declare.h"
#include "absl/status/statusor.h"
#include "analysis/study/config_file.h"
#include "analysis/study/study_config.h"
#include "analysis/study/study_runner.h"
#include "records/host.h"

ABSL_DECLARE_FLAG(std::string, config);
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

// The flags that describe a study: what a config file may say.
const std::vector<ConfigKey>& StudyKeys();

// Each fails with a message that names the flag to change.
absl::StatusOr<StudyConfig> ConfigFromFlags(const HostInfo& host);
absl::StatusOr<StudyRunnerConfig> RunnerFromFlags(const StudyConfig& study);

// The plotly.min.js of the report.
absl::StatusOr<std::string> PlotlyFromFlags();

// What study.json says of a study that these flags describe.
ConfigFile DescribeStudy(const StudyConfig& study, const HostInfo& host);

}  // namespace rankwise

#endif  // ANALYSIS_STUDY_STUDY_FLAGS_H_
