// The runs of a study: each started, awaited and checked, or found finished;
// one at a time, with progress and what failed on the standard output.
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
  std::string record;      // DIR/STEM.jsonl, once the run has ended well
  std::string incomplete;  // where it is written until then
  std::string log;         // DIR/logs/STEM.log
};

RunPaths PathsOfRun(const std::string& dir, const PlannedRun& run);

// Runs `planned` to its end and checks that it recorded what it should. Fails
// as RunCommand does (programs.h), and where the records are wrong.
absl::StatusOr<RunTrace> MakeRun(const StudyConfig& config,
                                 const PlannedRun& planned,
                                 HeldSignals& signals);

// The records of `planned` where config.output_dir has all of them. NotFound if
// there are none; FailedPrecondition if they belong to another run or are
// truncated. Changes nothing.
absl::StatusOr<RunTrace> LoadFinishedRun(const StudyConfig& config,
                                         const PlannedRun& planned);

// The same, but records of another run, and truncated ones, are renamed to
// RunPaths::incomplete, and are NotFound too.
absl::StatusOr<RunTrace> FindFinishedRun(const StudyConfig& config,
                                         const PlannedRun& planned);

struct StudyResult {
  // By file name, those among them that were found finished.
  std::vector<RunTrace> runs;
  std::vector<std::string> failed;  // one line for each
};

// Makes the runs of `plan` that the folder has not finished yet, until one of
// `signals` comes; one line of progress a run, with the time left by `times`
// and by the runs that were made. A failed run is reported with
// its last lines, and the study goes on, without the other repetitions of a
// configuration that has only failed.
StudyResult RunStudy(const StudyConfig& config,
                     const std::vector<PlannedRun>& plan, RunTimes times,
                     HeldSignals& signals);

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_STUDY_STUDY_RUN_H_
