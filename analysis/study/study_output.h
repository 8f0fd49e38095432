// What the study says before its runs, and instead of them.

#ifndef ANALYSIS_STUDY_STUDY_OUTPUT_H_
#define ANALYSIS_STUDY_STUDY_OUTPUT_H_

#include <string>

#include "absl/types/span.h"
#include "analysis/run_trace.h"
#include "analysis/study/run_times.h"
#include "analysis/study/study_config.h"
#include "analysis/study/study_plan.h"
#include "analysis/study/study_runner.h"
#include "records/host.h"

namespace rankwise {

// "Study of single, ddp at world sizes 1, 2: 63 runs of 60 steps, ..."
std::string StudyHeading(const StudyConfig& config, const StudyPlan& plan,
                         const HostInfo& host, const std::string& output_dir);

// The cells with their repetitions and times, the sum, and where the times come
// from. `searched`: cells whose batch only short runs can tell.
std::string DryRunText(const StudyConfig& config, const StudyPlan& plan,
                       absl::Span<const PlannedRun> searched,
                       const RunTimes& times);

// The commands of all runs, one a line.
std::string CommandsText(const StudyConfig& config, const StudyPlan& plan,
                         const StudyRunnerConfig& runner);

// "Not run: WHAT: why." for each.
std::string NotRunText(const StudyPlan& plan);

// Of runs that are not all of the same code: how many are of which;
// else "".
std::string DifferentCodeText(absl::Span<const RunTrace> runs);

// As one word of a shell's command line.
std::string ShellWord(const std::string& text);

}  // namespace rankwise

#endif  // ANALYSIS_STUDY_STUDY_OUTPUT_H_
