// The command lines of a study's runs.

#ifndef ANALYSIS_STUDY_RUN_COMMAND_H_
#define ANALYSIS_STUDY_RUN_COMMAND_H_

#include <string>
#include <vector>

#include "analysis/study/study_config.h"
#include "analysis/study/study_plan.h"

namespace rankwise {

// The command line of one run: all but the path of the binary itself.
std::vector<std::string> RunArguments(const StudyConfig& config,
                                      const PlannedRun& run,
                                      const std::string& record_path);

}  // namespace rankwise

#endif  // ANALYSIS_STUDY_RUN_COMMAND_H_
