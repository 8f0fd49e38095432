// One run of a study: started, awaited, and its records checked; or found
// finished.

#ifndef ANALYSIS_STUDY_STUDY_RUN_H_
#define ANALYSIS_STUDY_STUDY_RUN_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "analysis/run_trace.h"
#include "analysis/study/study_config.h"
#include "analysis/study/study_plan.h"

namespace rankwise {

struct RunPaths {
  std::string record;      // DIR/STEM.jsonl, once the run has ended well
  std::string incomplete;  // where it is written until then
  std::string log;         // DIR/logs/STEM.log
};

RunPaths PathsOfRun(const std::string& dir, const PlannedRun& run);

struct RunOutcome {
  // DeadlineExceeded: it took longer than the timeout; Unknown: it ended badly.
  absl::StatusOr<RunTrace> trace = absl::UnknownError("not run");
  absl::Duration elapsed;
  int interrupted_by = 0;  // the signal that ended it and the study, or 0
};

// Runs `planned` to its end and checks that it recorded what it should. Needs
// a HeldSignals that lives (subprocess.h), and a `dir` made by
// PrepareStudyFolder (study_folder.h).
RunOutcome MakeRun(const StudyConfig& config, const PlannedRun& planned,
                   const std::string& trainer_dir, absl::Duration timeout,
                   const std::string& dir);

// The records of `planned` where `dir` has them whole. NotFound without them;
// records of something else, or that were cut short, are renamed to
// RunPaths::incomplete, and are NotFound too.
absl::StatusOr<RunTrace> FindFinishedRun(const StudyConfig& config,
                                         const PlannedRun& planned,
                                         const std::string& dir);

}  // namespace rankwise

#endif  // ANALYSIS_STUDY_STUDY_RUN_H_
