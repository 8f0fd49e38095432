// Executes the runs of a study one at a time, or finds them finished; checks
// them, and prints progress and failures to the standard output.
#ifndef RANKWISE_ANALYSIS_STUDY_STUDY_RUN_H_
#define RANKWISE_ANALYSIS_STUDY_STUDY_RUN_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "analysis/runs/run_trace.h"
#include "analysis/study/programs.h"
#include "analysis/study/study_output.h"
#include "analysis/study/study_plan.h"

namespace rankwise {

struct RunPaths {
  std::string record;      // DIR/STEM.jsonl, after success
  std::string incomplete;  // the same before success
  std::string log;         // DIR/logs/STEM.log
};

RunPaths PathsOfRun(const std::string& dir, const PlannedRun& run);

// Runs `planned` to its end and checks its records. Fails if RunCommand does
// (programs.h), or if the records are wrong.
absl::StatusOr<RunTrace> MakeRun(const StudyConfig& config,
                                 const PlannedRun& planned,
                                 HeldSignals& signals);

// Returns the records of `planned` if config.output_dir has all of them.
// NotFound if there are none; FailedPrecondition if they belong to another run
// or are truncated. Changes nothing.
absl::StatusOr<RunTrace> LoadFinishedRun(const StudyConfig& config,
                                         const PlannedRun& planned);

// LoadFinishedRun, but renames records of another run, and truncated ones, to
// RunPaths::incomplete, and returns NotFound for them, too.
absl::StatusOr<RunTrace> FindFinishedRun(const StudyConfig& config,
                                         const PlannedRun& planned);

struct StudyResult {
  // by file name, including those found finished
  std::vector<RunTrace> runs;
  std::vector<std::string> failed;  // one line each
};

// Executes the runs of `plan` that are not finished in the folder, until one of
// `signals` arrives. Prints a line of progress per run, with the remaining time
// estimated from `times` and the completed runs. A failed run is reported with
// its last lines of output; the study continues, without the other repetitions
// of a configuration that has only failed.
StudyResult RunStudy(const StudyConfig& config,
                     const std::vector<PlannedRun>& plan, RunTimes times,
                     HeldSignals& signals);

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_STUDY_STUDY_RUN_H_
